#ifndef BENCH_PROXY_SUBJECT_H_
#define BENCH_PROXY_SUBJECT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/micro/gpu_site.h"
#include "tools/lab/process/child_process.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::bench {

// A reverse proxy under measurement: a separate process, in which one thread
// does the work. It ends with this object. A failure ends the bench.
class Subject {
 public:
  // Starts stock nginx, configured for streams: it does not buffer answers, and
  // keeps connections to the engine.
  static Subject Nginx(uint16_t engine_port);
  // Starts a fineserve-proxy that finds no fineserved and decides by itself.
  // `flags` are for its command line. `program` is the proxy of another build;
  // if empty, of this one.
  static Subject Alone(uint16_t engine_port,
                       const std::vector<std::string>& flags = {},
                       const std::string& program = "");
  // Starts a fineserve-proxy that asks a fineserved about each request, and
  // that fineserved on `gpu`. Its limits let every request start at once.
  static Subject Scheduled(uint16_t engine_port, GpuSite* gpu);

  uint16_t port() const { return port_; }
  pid_t pid() const { return proxy_.pid(); }

 private:
  Subject(process::TemporaryFolder folder,
          const std::vector<std::string>& words, uint16_t port);

  process::TemporaryFolder folder_;
  uint16_t port_;
  process::ChildProcess proxy_;
};

}  // namespace fineserve::bench

#endif  // BENCH_PROXY_SUBJECT_H_

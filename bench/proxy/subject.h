#ifndef BENCH_PROXY_SUBJECT_H_
#define BENCH_PROXY_SUBJECT_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::bench {

// A reverse proxy under measurement: a process of its own, with one thread
// that does the work, ended with this object. What fails ends the bench.
class Subject {
 public:
  // Stock nginx, its configuration as for streams: no buffering of answers,
  // connections to the engine kept.
  static Subject Nginx(uint16_t engine_port);
  static Subject FineServe(uint16_t engine_port);

  Subject(Subject&& other) noexcept;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  ~Subject();

  uint16_t port() const { return port_; }
  // Of all its threads since it began (/proc/PID/schedstat, precise to ns).
  double CpuSeconds() const;
  uint64_t ResidentBytes() const;

 private:
  Subject(const std::string& folder, const std::vector<std::string>& command,
          uint16_t port);

  pid_t pid_;
  uint16_t port_;
  std::string folder_;
};

}  // namespace fineserve::bench

#endif  // BENCH_PROXY_SUBJECT_H_

#ifndef BENCH_SERVING_FLEET_SERVICE_H_
#define BENCH_SERVING_FLEET_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/soak/program.h"
#include "tools/lab/process/child_process.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::bench {

// Emulated GPUs, all alike.
struct Gpus {
  int count = 1;
  uint32_t memory_mib = 0;  // of each
  uint32_t pool_mib = 0;
  uint32_t slab_mib = 0;
};

// The processes of a whole service on a machine of their own: a fineserved for
// each GPU, fsctl up, which starts the engines of a fleet file, and
// fineserve-proxy. Errors go to standard error, after `bench`. All ends with
// this object. Confined to the thread that makes it.
class FleetService {
 public:
  FleetService(std::string bench, const Gpus& gpus);
  FleetService(const FleetService&) = delete;
  FleetService& operator=(const FleetService&) = delete;
  ~FleetService();

  // A file of this name among the service's.
  std::string Path(const std::string& name) const {
    return folder_.path() + "/" + name;
  }
  // Port on which the fleet file has to let the proxy listen.
  uint16_t port() const { return port_; }

  // The UUIDs of the GPUs, which the fleet file names; empty, after a message,
  // if they cannot be found. Not after Start.
  std::vector<std::string> FindGpus();
  // Starts everything; engines serve later. False, after a message, if that
  // fails.
  bool Start(const std::string& fleet_path);

  // Output of fsctl; empty if it fails.
  std::string Fsctl(const std::vector<std::string>& arguments);
  // Output so far of the first daemon and fsctl up, for messages.
  std::string About() const;
  // Says it, unless SIGINT came; false.
  bool Fail(const std::string& what) const;

 private:
  bool StartDaemons(const std::string& fleet_path);
  std::unique_ptr<Program> Launch(std::vector<std::string> words);

  const std::string bench_;
  const Gpus gpus_;
  const process::TemporaryFolder folder_;
  const process::TemporaryFolder device_folder_{"/dev/shm"};
  const process::Environment environment_;
  const uint16_t port_;
  std::vector<std::unique_ptr<Program>> programs_;  // in the order started
  int launched_ = 0;
};

}  // namespace fineserve::bench

#endif  // BENCH_SERVING_FLEET_SERVICE_H_

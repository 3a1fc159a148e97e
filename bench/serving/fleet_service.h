#ifndef BENCH_SERVING_FLEET_SERVICE_H_
#define BENCH_SERVING_FLEET_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/lab/stage/fleet_text.h"
#include "tools/lab/stage/machine.h"

namespace fineserve::bench {

// Emulated GPUs, all alike.
struct Gpus {
  int count = 1;
  uint32_t memory_mib = 0;  // of each
  uint32_t pool_mib = 0;    // 0: "auto"
  uint32_t slab_mib = 0;
  std::string daemon_flags = {};  // further ones, of each fineserved
};

// The processes of a whole service on a separate machine: a fineserved for each
// GPU, fsctl up, which starts the engines of a fleet file, and fineserve-proxy.
// Errors go to standard error, after `bench`. All processes end with this
// object. Confined to the thread that creates it.
class FleetService {
 public:
  FleetService(std::string bench, const Gpus& gpus);
  // Ends the proxy first, then fsctl up with its engines, then the daemons.
  ~FleetService() {
    while (!programs_.empty()) programs_.pop_back();
  }

  // Returns the path of a file of this name in the service's folder.
  std::string Path(const std::string& name) const {
    return machine_.folder() + "/" + name;
  }
  // Port on which the fleet file must let the proxy listen.
  uint16_t port() const { return port_; }

  // Returns the UUIDs of the GPUs, which the fleet file names; empty, after a
  // message, if they cannot be found. Must not be called after Start.
  std::vector<std::string> FindGpus();
  std::string fleet_path() const { return Path("fleet.toml"); }
  // Writes the fleet file and starts everything; the engines begin to serve
  // later. Returns false, after a message, if that fails.
  bool Start(const stage::FleetText& fleet);
  // Asks each of `models` for a token repeatedly until all answer at `port`.
  // Returns false, after a message, if they do not in time or SIGINT came.
  bool AwaitModels(uint16_t port, const std::vector<std::string>& models) const;

  // The sockets of the daemons, and the ports of their metrics.
  std::vector<std::string> Sockets() const { return machine_.Sockets(); }
  const std::vector<uint16_t>& metrics_ports() const { return metrics_ports_; }

  // Returns the output of fsctl; empty if it fails.
  std::string Fsctl(const std::vector<std::string>& arguments);
  static std::string Tinyserve() {
    return process::ProgramFolder() + "/tinyserve";
  }
  // Returns the output so far of the first daemon and fsctl up, for messages.
  std::string About() const;
  // Prints `what`, unless SIGINT came. Returns false.
  bool Fail(const std::string& what) const;

 private:
  bool StartDaemons(const std::vector<std::string>& flags);

  const std::string bench_;
  const Gpus gpus_;
  stage::Machine machine_{stage::Process::Stdout::kLog};
  const uint16_t port_;
  std::vector<uint16_t> metrics_ports_;                    // by GPU
  std::vector<std::unique_ptr<stage::Process>> programs_;  // in start's order
};

}  // namespace fineserve::bench

#endif  // BENCH_SERVING_FLEET_SERVICE_H_

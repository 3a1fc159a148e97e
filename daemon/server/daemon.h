#ifndef DAEMON_SERVER_DAEMON_H_
#define DAEMON_SERVER_DAEMON_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/backing/cuda_backing.h"
#include "daemon/backing/device.h"
#include "daemon/clock/clock.h"
#include "daemon/config/config.h"
#include "daemon/server/admission_server.h"
#include "daemon/server/endpoint.h"
#include "daemon/server/event_loop.h"
#include "daemon/server/pool_service.h"
#include "daemon/server/socket_server.h"
#include "daemon/slab/table_writer.h"

namespace fineserve::server {

// What a start would do: found out without allocating anything.
struct Plan {
  driver::Driver driver;
  backing::Device device;
  slab::PoolGeometry geometry;  // of the pool at its largest
  uint32_t slabs = 0;           // with memory from the start
  uint64_t free_bytes = 0;      // on the device now
};

// Loads the driver, finds the GPU and cuts the pool. InvalidArgument if the
// configuration asks for what this machine has not.
absl::StatusOr<Plan> MakePlan(const config::Config& config,
                              const backing::DeviceChoice& choice);

// One running fineserved: owns everything below it and drives it from one
// thread.
class Daemon {
 public:
  // Called on SIGHUP; an error is logged and the old configuration kept.
  using Reload = std::function<absl::StatusOr<config::Config>()>;

  // Claims the GPU, creates the pool and starts to zero it.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(
      const Plan& plan, const backing::DeviceChoice& choice,
      config::Config config, Reload reload);

  // Serves until SIGTERM or SIGINT.
  void Serve();

 private:
  Daemon(config::Config config, Reload reload, Endpoint endpoint,
         std::unique_ptr<backing::Backing> backing, uint32_t slabs,
         std::unique_ptr<slab::TableWriter> table,
         const slab::TableIdentity& identity);
  // Admits the requests of the configuration's fleet, if there is one.
  absl::Status SetFleet();
  void Settle();
  void ReadConfigAgain();
  void Resize(uint64_t pool_bytes);

  config::Config config_;
  const Reload reload_;
  Endpoint endpoint_;
  std::unique_ptr<backing::Backing> backing_;
  std::unique_ptr<slab::TableWriter> table_;
  PoolService pool_;
  EventLoop loop_;
  SocketServer sockets_;
  std::string gpu_;                             // its UUID
  std::unique_ptr<AdmissionServer> admission_;  // null without a fleet
  // While something is under way that makes no descriptor readable.
  std::unique_ptr<EventSource> poll_timer_;
  uint64_t poll_period_us_ = 0;
};

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_DAEMON_H_

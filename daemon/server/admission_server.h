#ifndef DAEMON_SERVER_ADMISSION_SERVER_H_
#define DAEMON_SERVER_ADMISSION_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/admission/admission_service.h"
#include "daemon/clock/clock.h"
#include "daemon/config/fleet.h"
#include "daemon/server/event_loop.h"
#include "daemon/wire/socket.h"

namespace fineserve::server {

class PoolService;

// Joins AdmissionService with its socket and the loop. Confined to the loop's
// thread.
class AdmissionServer {
 public:
  // Binds `path`, beside which it keeps which engines are drained. `gpu`: this
  // daemon's UUID. All pointers must outlive it.
  static absl::StatusOr<std::unique_ptr<AdmissionServer>> Create(
      const config::Fleet& fleet, const std::string& gpu,
      const std::string& path, const PoolService* pool, const Clock* clock,
      EventLoop* loop);

  // With another fleet a new service begins, under another epoch: proxies greet
  // again and say what runs and what waits. The same fleet changes nothing.
  absl::Status SetFleet(const config::Fleet& fleet);

  // To be called after each round of the loop.
  void Settle();

 private:
  AdmissionServer(const std::string& gpu, const std::string& path,
                  wire::ServerSocket socket, const PoolService* pool,
                  const Clock* clock, EventLoop* loop);

  const std::string gpu_;
  config::Fleet fleet_;
  const PoolService* const pool_;
  const Clock* const clock_;
  admission::DrainedEngines drained_;
  wire::ServerSocket socket_;
  std::unique_ptr<admission::AdmissionService> service_;
  std::unique_ptr<EventAlarm> alarm_;
  std::unique_ptr<EventSource> readable_;
};

}  // namespace fineserve::server

#endif  // DAEMON_SERVER_ADMISSION_SERVER_H_

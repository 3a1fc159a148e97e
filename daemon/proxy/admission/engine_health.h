#ifndef DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_
#define DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_

#include <set>
#include <string>

#include "daemon/config/fleet.h"
#include "daemon/proxy/admission/daemon_admission.h"

namespace boost::asio {
class io_context;
}

namespace fineserve::proxy {

// Asks each engine of one GPU for its /health every second and tells
// DaemonAdmission whether it serves; once it does, asks for its /v1/models, to
// see whether it serves what the fleet says. Confined to the proxy's thread;
// must outlive the io_context's run.
class EngineHealth {
 public:
  // Both outlive this object.
  EngineHealth(boost::asio::io_context* io, DaemonAdmission* admission)
      : io_(io), admission_(admission) {}
  EngineHealth(const EngineHealth&) = delete;
  EngineHealth& operator=(const EngineHealth&) = delete;

  // Asks for the first time at once. The work ends with the io_context.
  void Start();

 private:
  void AskAll();
  void Answered(const config::FleetEngine& engine,
                DaemonAdmission::Health health);

  boost::asio::io_context* const io_;
  DaemonAdmission* const admission_;
  std::set<std::string> asked_;    // engines that have not answered yet
  std::set<std::string> serving_;  // engines, when they were last asked
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_

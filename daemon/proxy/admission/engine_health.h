#ifndef DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_
#define DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "daemon/config/fleet.h"
#include "daemon/proxy/admission/daemon_admission.h"
#include "daemon/proxy/admission/liveness.h"

namespace boost::asio {
class io_context;
}

namespace fineserve::proxy {

// Asks each engine of one GPU for its /health every second and tells
// DaemonAdmission whether it serves; once it does, asks for its /v1/models, to
// see whether it serves what the fleet says. Until Start, only engines that are
// suspected are asked, until they serve. Confined to the proxy's thread; must
// outlive the io_context's run.
class EngineHealth {
 public:
  // All three outlive this object.
  EngineHealth(boost::asio::io_context* io, DaemonAdmission* admission,
               const Clock* clock);
  EngineHealth(const EngineHealth&) = delete;
  EngineHealth& operator=(const EngineHealth&) = delete;

  // Asks for the first time at once. The work ends with the io_context.
  void Start();

 private:
  // The result of one question.
  struct Answer {
    DaemonAdmission::Health health;
    bool in_time;
  };

  void Begin();
  void AskAll();
  void Ask(const config::FleetEngine& engine);
  void Suspect(const config::FleetEngine& engine);
  void Answered(const config::FleetEngine& engine, Answer answer,
                uint64_t asked_ns);
  void AskForModels(const config::FleetEngine& engine);

  boost::asio::io_context* const io_;
  DaemonAdmission* const admission_;
  const Clock* const clock_;
  bool asks_all_ = false;
  bool begun_ = false;
  std::set<std::string> suspected_;  // engines
  std::set<std::string> asked_;      // engines that have not answered yet
  std::set<std::string> serving_;    // engines, when they were last asked
  std::map<std::string, Liveness> liveness_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_

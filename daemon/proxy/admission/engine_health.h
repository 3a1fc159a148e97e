#ifndef DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_
#define DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/proxy/admission/gpu_admission.h"

namespace boost::asio {
class io_context;
}

namespace fineserve::proxy {

// Judges an engine by its successive answers to /health. An answer counts at
// once, and so does a refused connection. No answer in time is a miss. Because
// busy engines answer late, an engine that served stops serving only with the
// kMost-th miss in a row, and progress of its requests makes up for a miss.
// Pure.
class Liveness {
 public:
  static constexpr uint32_t kMost = 3;

  using Health = EngineStates::Health;

  void Answered(Health health);
  // Notes that no answer came in time. `health` is the result for an engine
  // that is not known to serve. `progressed`: its requests have progressed
  // since the question.
  void Missed(Health health, bool progressed);

  Health health() const { return health_; }
  uint32_t misses() const { return misses_; }  // in a row

 private:
  Health health_ = Health::kDoesNot;
  uint32_t misses_ = 0;
};

// Asks each engine of one GPU for its /health every second and tells
// GpuAdmission whether it serves. Once an engine serves, asks it for its
// /v1/models, to see whether it serves what the fleet says. Until Start, asks
// only suspected engines, until they serve. Confined to the proxy's thread;
// must outlive the io_context's run.
class EngineHealth {
 public:
  // All three arguments must outlive this object.
  EngineHealth(boost::asio::io_context* io, GpuAdmission* admission,
               const Clock* clock);
  EngineHealth(const EngineHealth&) = delete;
  EngineHealth& operator=(const EngineHealth&) = delete;

  // Asks for the first time at once. The work ends with the io_context.
  void Start();

 private:
  // The result of one question.
  struct Answer {
    EngineStates::Health health;
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
  GpuAdmission* const admission_;
  const Clock* const clock_;
  bool asks_all_ = false;
  bool begun_ = false;
  std::set<std::string> suspected_;  // engines
  std::set<std::string> asked_;      // engines that have not answered yet
  std::set<std::string> serving_;    // engines, when they were last asked
  std::map<std::string, Liveness> liveness_;
};

// Returns the trouble of an engine that is to serve `model` if its GET
// /v1/models has this body. Empty if the model is listed, or if the body is no
// list of models and so shows nothing.
std::string TroubleOfModels(absl::string_view body, const std::string& model);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_

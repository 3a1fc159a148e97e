#ifndef DAEMON_PROXY_ADMISSION_LIVENESS_H_
#define DAEMON_PROXY_ADMISSION_LIVENESS_H_

#include <cstdint>

#include "daemon/proxy/admission/daemon_admission.h"

namespace fineserve::proxy {

// Judges an engine by its answers to /health together. An answer counts at
// once, and so does a refused connection. No answer in time is a miss: engines
// are late while they are busy, so one that served stops serving only with the
// kMost-th miss in a row, and progress of its requests makes up for a miss.
// Pure.
class Liveness {
 public:
  static constexpr uint32_t kMost = 3;

  using Health = DaemonAdmission::Health;

  void Answered(Health health);
  // No answer came in time. `health`: the meaning for an engine that is not
  // known to serve. `progressed`: its requests did since the question.
  void Missed(Health health, bool progressed);

  Health health() const { return health_; }
  uint32_t misses() const { return misses_; }  // in a row

 private:
  Health health_ = Health::kDoesNot;
  uint32_t misses_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_LIVENESS_H_

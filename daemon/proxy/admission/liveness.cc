#include "daemon/proxy/admission/liveness.h"

namespace fineserve::proxy {

void Liveness::Answered(Health health) {
  health_ = health;
  misses_ = 0;
}

void Liveness::Missed(Health health, bool progressed) {
  misses_ = progressed ? 0 : misses_ + 1;
  if (health_ != Health::kServes || misses_ >= kMost) health_ = health;
}

}  // namespace fineserve::proxy

#include "tools/fsctl/launch/known_plan.h"

#include <algorithm>

#include "daemon/wire/message.h"

namespace fineserve::fsctl {

bool KnownPlan::Learn(const wire::PlanT& plan) {
  if (plan.number <= number_) return false;
  number_ = plan.number;
  running_.clear();
  for (const auto& place : plan.places) {
    if (place->state != wire::PlaceState::kOff) {
      running_.push_back(place->engine);
    }
  }
  std::sort(running_.begin(), running_.end());
  return true;
}

Wish KnownPlan::Of(const config::FleetEngine& engine) const {
  if (!engine.is_place) return Wish::kRun;
  if (number_ == 0) return Wish::kUnknown;
  return std::binary_search(running_.begin(), running_.end(), engine.name)
             ? Wish::kRun
             : Wish::kStop;
}

}  // namespace fineserve::fsctl

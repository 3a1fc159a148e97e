#include "tools/up/wish.h"

#include "daemon/contract/wire/message.h"

namespace fineserve::fsctl {

Wish WishOf(const wire::NewestPlan& plan, const config::FleetEngine& engine) {
  if (engine.on_request) return Wish::kUnknown;
  if (!engine.is_place) return Wish::kRun;
  const wire::PlannedPlaceT* place = plan.Place(engine.name);
  if (place == nullptr) return Wish::kUnknown;
  return place->state == wire::PlaceState::kOff ? Wish::kStop : Wish::kRun;
}

bool Learn(const wire::PlanT& reported, wire::NewestPlan* known) {
  const wire::PlanT* const before = known->plan();
  return known->Take(reported).ok() && known->plan() != before;
}

}  // namespace fineserve::fsctl

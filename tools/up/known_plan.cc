#include "tools/up/known_plan.h"

#include <tuple>

#include "daemon/wire/message.h"

namespace fineserve::fsctl {

bool KnownPlan::Learn(const wire::PlanT& plan) {
  if (std::tie(plan.term, plan.number) <= std::tie(term_, number_))
    return false;
  term_ = plan.term;
  number_ = plan.number;
  runs_.clear();
  for (const auto& place : plan.places) {
    runs_[place->engine] = place->state != wire::PlaceState::kOff;
  }
  return true;
}

Wish KnownPlan::Of(const config::FleetEngine& engine) const {
  if (!engine.is_place) return Wish::kRun;
  const auto named = runs_.find(engine.name);
  if (named == runs_.end()) return Wish::kUnknown;
  return named->second ? Wish::kRun : Wish::kStop;
}

}  // namespace fineserve::fsctl

#include "daemon/contract/wire/newest_plan.h"

#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/wire/message.h"

namespace fineserve::wire {
namespace {

// Plan numbers from here on are refused, since a leader could not go beyond
// them.
constexpr uint64_t kNoNumber = uint64_t{1} << 63;

std::string Name(uint64_t term, uint64_t number) {
  return term == 0 ? absl::StrCat("plan ", number)
                   : absl::StrCat("plan ", number, " of term ", term);
}

}  // namespace

const char* PlaceStateName(PlaceState state) {
  constexpr const char* kNames[] = {"off", "start", "serve", "retire"};
  static_assert(std::size(kNames) == static_cast<size_t>(PlaceState::MAX) + 1);
  const auto number = static_cast<size_t>(state);
  return number < std::size(kNames) ? kNames[number] : "unknown";
}

NewestPlan::NewestPlan() = default;
NewestPlan::~NewestPlan() = default;

absl::Status NewestPlan::Take(const PlanT& plan) {
  if (plan.number == 0 || plan.number >= kNoNumber) {
    return absl::InvalidArgumentError("a plan has no number");
  }
  const auto reported = std::make_pair(plan.term, plan.number);
  const auto known = std::make_pair(term(), number());
  if (reported < known) {
    return absl::FailedPreconditionError(
        absl::StrCat(Name(plan.term, plan.number), " is older than ",
                     Name(term(), number()), ", which is known here"));
  }
  if (reported == known) return absl::OkStatus();
  auto next = std::make_unique<PlanT>(plan);
  NoteChanges(*next);
  places_.clear();
  for (const auto& place : next->places) {
    const double rate = place->target_rate;
    place->target_rate = std::isfinite(rate) && rate > 0 ? rate : 0;
    places_[place->engine] = place.get();
  }
  plan_ = std::move(next);
  return absl::OkStatus();
}

void NewestPlan::NoteChanges(const PlanT& next) {
  for (const auto& place : next.places) {
    const PlannedPlaceT* before = Place(place->engine);
    if (before == nullptr || before->state == place->state) continue;
    changes_.push_back(
        {next.number, place->engine, before->state, place->state});
    if (changes_.size() > kMostChanges) changes_.pop_front();
  }
}

void NewestPlan::Forget() {
  changes_.clear();
  places_.clear();
  plan_.reset();
}

uint64_t NewestPlan::number() const {
  return plan_ == nullptr ? 0 : plan_->number;
}

uint64_t NewestPlan::term() const { return plan_ == nullptr ? 0 : plan_->term; }

const PlannedPlaceT* NewestPlan::Place(const std::string& engine) const {
  const auto place = places_.find(engine);
  return place == places_.end() ? nullptr : place->second;
}

bool NewestPlan::LetsIn(const std::string& engine) const {
  const PlannedPlaceT* place = Place(engine);
  return place == nullptr || place->state == PlaceState::kServe;
}

double NewestPlan::TargetRate(const std::string& engine,
                              double otherwise) const {
  const PlannedPlaceT* place = Place(engine);
  if (place == nullptr) return otherwise;
  return LetsIn(engine) ? place->target_rate : 0;
}

bool NewestPlan::IsOff(const std::string& engine) const {
  return Has(engine, PlaceState::kOff);
}

bool NewestPlan::MayRest(const std::string& engine) const {
  const PlannedPlaceT* place = Place(engine);
  return place == nullptr || !place->no_rest;
}

bool NewestPlan::Starts(const std::string& engine) const {
  return Has(engine, PlaceState::kStart);
}

bool NewestPlan::Ends(const std::string& engine) const {
  return IsOff(engine) || Has(engine, PlaceState::kRetire);
}

bool NewestPlan::Has(const std::string& engine, PlaceState state) const {
  const PlannedPlaceT* place = Place(engine);
  return place != nullptr && place->state == state;
}

}  // namespace fineserve::wire

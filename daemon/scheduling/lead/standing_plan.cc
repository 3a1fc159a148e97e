#include "daemon/scheduling/lead/standing_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/wire/newest_plan.h"

namespace fineserve::lead {
namespace {

using nlohmann::json;

absl::StatusOr<PlaceState> StateNamed(const std::string& name) {
  for (const PlaceState state : wire::EnumValuesPlaceState()) {
    if (name == wire::PlaceStateName(state)) return state;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a place's state is \"", name, "\""));
}

json MoveJson(const Move& m) {
  return {{"model", m.model}, {"to", m.to}, {"from", m.from}, {"why", m.why}};
}

Move MoveOf(const json& j) {
  return {j.at("model").get<std::string>(), j.at("to").get<std::string>(),
          j.at("from").get<std::string>(), j.at("why").get<std::string>()};
}

// Throws nlohmann's exceptions if something is missing.
absl::StatusOr<StandingPlan> PlanOf(const json& j) {
  StandingPlan plan;
  plan.number = j.at("number").get<uint64_t>();
  plan.frozen = j.at("frozen").get<bool>();
  plan.applies = j.at("applies").get<bool>();
  plan.pins = j.at("pins").get<std::map<std::string, std::string>>();
  if (j.contains("frozen_at")) {
    plan.frozen_at = j.at("frozen_at").get<std::string>();
  }
  if (j.contains("term")) plan.term = j.at("term").get<uint64_t>();
  if (j.contains("move")) plan.move = MoveOf(j.at("move"));
  for (const json& place : j.at("places")) {
    const auto state = StateNamed(place.at("state").get<std::string>());
    if (!state.ok()) return state.status();
    plan.places.push_back({place.at("engine").get<std::string>(), *state,
                           place.at("target_rate").get<double>(),
                           place.value("no_rest", false)});
  }
  return plan;
}

}  // namespace

std::string Describe(const Move& move) {
  std::string text =
      absl::StrCat(move.model, " moves from ", move.from, " to ", move.to);
  if (move.from.empty()) text = absl::StrCat(move.model, " gets ", move.to);
  if (move.to.empty()) text = absl::StrCat(move.model, " gives up ", move.from);
  return absl::StrCat(text, " (", move.why, ")");
}

const Place* StandingPlan::Find(absl::string_view engine) const {
  const auto found =
      std::find_if(places.begin(), places.end(),
                   [&](const Place& p) { return p.engine == engine; });
  return found == places.end() ? nullptr : &*found;
}

Place* StandingPlan::Find(absl::string_view engine) {
  return const_cast<Place*>(std::as_const(*this).Find(engine));
}

PlaceState StandingPlan::StateOf(absl::string_view engine) const {
  const Place* place = Find(engine);
  return place == nullptr ? PlaceState::kOff : place->state;
}

void Adapt(const config::Fleet& fleet, StandingPlan* plan) {
  std::vector<Place> places;
  for (const config::FleetEngine& engine : fleet.engines) {
    if (!engine.is_place) continue;
    const Place* known = plan->Find(engine.name);
    places.push_back(known != nullptr ? *known : Place{engine.name});
  }
  plan->places = std::move(places);
  if (!plan->move) return;
  const Move& move = *plan->move;
  const bool lost = (!move.to.empty() && plan->Find(move.to) == nullptr) ||
                    (!move.from.empty() && plan->Find(move.from) == nullptr);
  if (!lost) return;
  // If one of the two is left, it serves, because it may be the model's only
  // one.
  for (const std::string& engine : {move.from, move.to}) {
    if (Place* left = plan->Find(engine)) left->state = PlaceState::kServe;
  }
  plan->move.reset();
}

bool TakeOff(const config::Fleet& fleet, const std::set<std::string>& lost,
             StandingPlan* plan) {
  const StandingPlan before = *plan;
  const auto is_lost = [&](const std::string& engine) {
    const config::FleetEngine* e = fleet.Engine(engine);
    if (e == nullptr) return false;
    const std::vector<std::string> gpus = e->Gpus();
    return std::any_of(
        gpus.begin(), gpus.end(),
        [&lost](const std::string& gpu) { return lost.count(gpu) > 0; });
  };
  if (plan->move && (is_lost(plan->move->to) || is_lost(plan->move->from))) {
    for (const std::string& engine : {plan->move->from, plan->move->to}) {
      Place* left = plan->Find(engine);
      if (left != nullptr) left->state = PlaceState::kServe;
    }
    plan->move.reset();
  }
  for (Place& place : plan->places) {
    if (!is_lost(place.engine)) continue;
    place.state = PlaceState::kOff;
    place.target_rate = 0;
  }
  return *plan != before;
}

std::string PlanText(const StandingPlan& plan) {
  json places = json::array();
  for (const Place& p : plan.places) {
    places.push_back({{"engine", p.engine},
                      {"state", wire::PlaceStateName(p.state)},
                      {"target_rate", p.target_rate}});
    if (p.no_rest) places.back()["no_rest"] = true;
  }
  json j = {{"number", plan.number}, {"term", plan.term},
            {"frozen", plan.frozen}, {"applies", plan.applies},
            {"pins", plan.pins},     {"places", places}};
  if (!plan.frozen_at.empty()) j["frozen_at"] = plan.frozen_at;
  if (plan.move) j["move"] = MoveJson(*plan.move);
  return j.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

absl::StatusOr<StandingPlan> ParsePlan(absl::string_view text) {
  try {
    return PlanOf(json::parse(text.begin(), text.end()));
  } catch (const json::exception& e) {
    return absl::InvalidArgumentError(e.what());
  }
}

std::string HistoryLine(const StandingPlan& plan, absl::string_view time,
                        absl::string_view why) {
  json places = json::object();
  for (const Place& p : plan.places) {
    if (p.state != PlaceState::kOff) {
      places[p.engine] = wire::PlaceStateName(p.state);
    }
  }
  const json j = {{"number", plan.number},
                  {"time", std::string(time)},
                  {"why", std::string(why)},
                  {"places", places}};
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace fineserve::lead

#include "daemon/scheduling/lead/advance.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::lead {
namespace {

using State = PlaceState;

Sighting Of(const Sightings& seen, const std::string& engine) {
  const auto known = seen.find(engine);
  return known == seen.end() ? Sighting() : known->second;
}

void Set(StandingPlan* plan, const std::string& engine, State state) {
  if (Place* place = plan->Find(engine)) place->state = state;
}

// Advances a move whose `to` is starting.
std::string WhileItStarts(const Sightings& seen, double for_s,
                          const config::PlannerSettings& settings,
                          StandingPlan* plan) {
  const Move move = *plan->move;
  if (Of(seen, move.to).serves) {
    Set(plan, move.to, State::kServe);
    if (move.from.empty()) {
      plan->move.reset();
      return absl::StrCat(move.to, " serves");
    }
    Set(plan, move.from, State::kRetire);
    return absl::StrCat(move.to, " serves, ", move.from, " retires");
  }
  if (for_s < settings.start_s) return "";
  Set(plan, move.to, State::kOff);
  plan->move.reset();
  return absl::StrCat("the move is undone: ", move.to, " did not serve within ",
                      settings.start_s, " s");
}

// Advances a move whose `from` is retiring; `to` serves, or the move has no
// `to`.
std::string WhileItRetires(const Sightings& seen, double for_s,
                           const config::PlannerSettings& settings,
                           StandingPlan* plan) {
  const Move move = *plan->move;
  const Sighting to = Of(seen, move.to), from = Of(seen, move.from);
  if (!move.to.empty() && !to.serves) {
    // The source takes over if it answers; if neither source nor target
    // answers, the move waits.
    if (!from.serves) return "";
    Set(plan, move.from, State::kServe);
    if (to.heard && to.running == 0) {
      Set(plan, move.to, State::kOff);
      plan->move.reset();
      return absl::StrCat("the move is undone: ", move.to, " is lost, ",
                          move.from, " serves again");
    }
    // The target may still answer requests: a daemon that is silent or new does
    // not know, and proxies give up an engine before all its answers have
    // ended.
    Set(plan, move.to, State::kRetire);
    std::swap(plan->move->to, plan->move->from);
    return absl::StrCat("the move turns back: ", move.from, " serves again, ",
                        move.to, " retires");
  }
  // After one broken answer or a slow /health, a proxy reports that an engine
  // does not serve, although the engine's other requests go on.
  const bool lets_in = from.serves && !from.knows_plan;
  const bool empty = from.heard && from.running == 0 && !lets_in;
  const bool late = for_s >= settings.drain_s;
  if (!empty && !late) return "";
  Set(plan, move.from, State::kOff);
  plan->move.reset();
  if (empty) return absl::StrCat(move.from, " is off");
  return absl::StrCat(move.from, " is off: after ", settings.drain_s,
                      " s it still ran ", from.running, " requests");
}

}  // namespace

std::string Advance(const Sightings& seen, double for_s,
                    const config::PlannerSettings& settings,
                    StandingPlan* plan) {
  if (!plan->move) return "";
  const Move& move = *plan->move;
  if (!move.to.empty() && plan->StateOf(move.to) == State::kStart) {
    return WhileItStarts(seen, for_s, settings, plan);
  }
  if (!move.from.empty() && plan->StateOf(move.from) == State::kRetire) {
    return WhileItRetires(seen, for_s, settings, plan);
  }
  plan->move.reset();  // a plan file that says neither
  return "a move that was in no state is forgotten";
}

}  // namespace fineserve::lead

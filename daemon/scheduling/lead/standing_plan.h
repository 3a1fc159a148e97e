#ifndef DAEMON_SCHEDULING_LEAD_STANDING_PLAN_H_
#define DAEMON_SCHEDULING_LEAD_STANDING_PLAN_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/contract/wire/message.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::lead {

using wire::PlaceState;

// One of the places of the fleet file.
struct Place {
  std::string engine;
  PlaceState state = PlaceState::kOff;
  double target_rate = 0;  // requests/s
  bool no_rest = {};       // it is off, and its process is to end: memory lacks
  bool operator==(const Place&) const = default;
};

// A change of the engine that serves a model, while it is under way: `to`
// starts, then serves while `from` retires. Without `from` the model gets one
// engine more, without `to` one less.
struct Move {
  std::string model;
  std::string to;
  std::string from;
  std::string why;
  bool operator==(const Move&) const = default;
};
// "chat moves from chat-0 to chat-1 (why)".
std::string Describe(const Move& move);

// The plan in force, with the operator's orders: all that a new leader needs to
// go on.
struct StandingPlan {
  uint64_t number = 0;        // 0: nothing is planned yet
  uint64_t term = 0;          // of its leader; 0: there is one machine
  std::vector<Place> places;  // in the order of the fleet file
  absl::optional<Move> move;
  bool frozen = false;                      // no moves begin
  std::string frozen_at;                    // RFC 3339; empty: not known
  bool applies = false;                     // moves are made for any gain
  std::map<std::string, std::string> pins;  // GPU's UUID by model
  bool operator==(const StandingPlan&) const = default;

  // Null if the plan does not name it.
  Place* Find(absl::string_view engine);
  const Place* Find(absl::string_view engine) const;
  PlaceState StateOf(absl::string_view engine) const;  // kOff if not named
};

// Makes the plan name the fleet's places, and no others. New ones are off. A
// move of an engine that is gone ends: the other one serves.
void Adapt(const config::Fleet& fleet, StandingPlan* plan);

// Takes what runs on `lost` GPUs, whole UUIDs or as the fleet writes them, out
// of the plan: those machines are gone, and their models go elsewhere. A move
// from such a GPU ends at its target, a move to one ends at its source. Returns
// true if anything changed.
bool TakeOff(const config::Fleet& fleet, const std::set<std::string>& lost,
             StandingPlan* plan);

// The plan as JSON, and back: InvalidArgument, in one line, if it is none.
std::string PlanText(const StandingPlan& plan);
absl::StatusOr<StandingPlan> ParsePlan(absl::string_view text);

// One line of JSON for the history: number, time (RFC 3339, UTC), why, and the
// states of the places that are not off.
std::string HistoryLine(const StandingPlan& plan, absl::string_view time,
                        absl::string_view why);

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_STANDING_PLAN_H_

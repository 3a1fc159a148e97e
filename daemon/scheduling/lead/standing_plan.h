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

// One place of the fleet file.
struct Place {
  std::string engine;
  PlaceState state = PlaceState::kOff;
  double target_rate = 0;  // requests/s
  bool no_rest = {};       // it is off, and its process is to end: memory lacks
  bool operator==(const Place&) const = default;
};

// A change, under way, of the engine that serves a model: `to` starts, then
// serves while `from` retires. Without `from`, the model gets one more engine;
// without `to`, one less.
struct Move {
  std::string model;
  std::string to;
  std::string from;
  std::string why;
  bool operator==(const Move&) const = default;
};
// Returns "chat moves from chat-0 to chat-1 (why)".
std::string Describe(const Move& move);

// The plan in force, with the operator's orders: all that a new leader needs to
// continue.
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

  // Returns null if the plan does not name the engine.
  Place* Find(absl::string_view engine);
  const Place* Find(absl::string_view engine) const;
  PlaceState StateOf(absl::string_view engine) const;  // kOff if not named
};

// Makes the plan name the fleet's places, and no others. New places are off. If
// an engine of a move is gone, the move ends and its other engine serves.
void Adapt(const config::Fleet& fleet, StandingPlan* plan);

// Takes everything that runs on `lost` GPUs (whole UUIDs, or as the fleet
// writes them) out of the plan, because their machines are gone; the models go
// elsewhere. A move from such a GPU ends at its target, and a move to one ends
// at its source. Returns true if anything changed.
bool TakeOff(const config::Fleet& fleet, const std::set<std::string>& lost,
             StandingPlan* plan);

// Converts the plan to JSON and back. InvalidArgument, in one line, if the text
// is not a plan.
std::string PlanText(const StandingPlan& plan);
absl::StatusOr<StandingPlan> ParsePlan(absl::string_view text);

// Returns one line of JSON for the history: number, time (RFC 3339, UTC), why,
// and the states of the places that are not off.
std::string HistoryLine(const StandingPlan& plan, absl::string_view time,
                        absl::string_view why);

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_STANDING_PLAN_H_

#ifndef DAEMON_CONTRACT_WIRE_NEWEST_PLAN_H_
#define DAEMON_CONTRACT_WIRE_NEWEST_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "daemon/contract/wire/message_types.h"

namespace fineserve::wire {

enum class PlaceState : uint8_t;

// Returns "off", "start", "serve" or "retire"; "unknown" for any other number,
// since the verifier of messages does not reject one.
const char* PlaceStateName(PlaceState state);

// A change of the state that the plan gives an engine.
struct PlaceChange {
  uint64_t number = 0;  // of the plan that did
  std::string engine;
  PlaceState from{};
  PlaceState to{};
};

// The newest of all plans received here: the one of the highest term, and in it
// the one with the highest number. It applies whichever sender it came from and
// in whatever order plans arrive, so that a leader that slept through an
// election changes nothing. Confined to a thread.
class NewestPlan {
 public:
  NewestPlan();
  ~NewestPlan();

  // Takes `plan` if it is newer than the known one; receiving the known one
  // again changes nothing. FailedPrecondition, naming both, if it is older;
  // InvalidArgument for 0 and from 2^63 on, which are not valid plan numbers.
  // Rates that are not an amount of requests count as 0.
  absl::Status Take(const PlanT& plan);
  // Forgets the plan because there is no longer a planner: engines run as the
  // fleet file says.
  void Forget();

  // Null: there is none yet.
  const PlanT* plan() const { return plan_.get(); }
  uint64_t number() const;  // 0: there is none yet
  uint64_t term() const;    // 0: there is none yet, or one machine

  // The last changes from one received plan to the next, oldest first. Several
  // at once are one step of a move.
  static constexpr size_t kMostChanges = 32;
  const std::deque<PlaceChange>& changes() const { return changes_; }

  // Returns the plan's entry for the engine of this name; null if there is no
  // plan or it does not name the engine. Valid until the next Take.
  const PlannedPlaceT* Place(const std::string& engine) const;
  // True if the engine may get new requests: the plan has it serve, or does not
  // name it.
  bool LetsIn(const std::string& engine) const;
  // Returns the engine's share of its model's requests, in requests/s: 0 unless
  // it may get new requests; `otherwise` if the plan does not name it.
  double TargetRate(const std::string& engine, double otherwise) const;
  // True if the plan's state for the engine is "off".
  bool IsOff(const std::string& engine) const;
  // True if the engine's process may keep running while the engine is off.
  // Older leaders let every engine rest.
  bool MayRest(const std::string& engine) const;
  // True if the engine should run, but gets no requests yet.
  bool Starts(const std::string& engine) const;
  // True if the plan wants the engine to end, so that requests which wait for
  // it should go elsewhere.
  bool Ends(const std::string& engine) const;

 private:
  // True if the plan names the engine and gives it this state.
  bool Has(const std::string& engine, PlaceState state) const;
  void NoteChanges(const PlanT& next);

  std::unique_ptr<const PlanT> plan_;
  std::map<std::string, const PlannedPlaceT*> places_;  // by engine, of plan_
  std::deque<PlaceChange> changes_;
};

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_NEWEST_PLAN_H_

#ifndef DAEMON_SCHEDULING_LEAD_LEADER_H_
#define DAEMON_SCHEDULING_LEAD_LEADER_H_

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/wire/message_types.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/scheduling/lead/advance.h"
#include "daemon/scheduling/lead/decide.h"
#include "daemon/scheduling/lead/demand_window.h"
#include "daemon/scheduling/lead/outlook.h"
#include "daemon/scheduling/lead/plan_board.h"
#include "daemon/scheduling/lead/plan_store.h"
#include "daemon/scheduling/lead/standing_plan.h"

namespace fineserve::lead {

// The leader of a machine's daemons: takes their reports, and gives a numbered
// plan (design note 0024). Has no sockets or timers; LeaderServer brings
// reports and calls Tick. A plan is written before PlanToSend() returns it, so
// it survives this process. Confined to a thread, except for the planning,
// which takes tens of ms and has its own thread and copies.
class Leader final : public admission::LeaderSeat {
 public:
  // Returns the time of day, for the history: RFC 3339, UTC.
  using TimeOfDay = std::function<std::string()>;

  // Continues from the plan in `store`. `gpu`: UUID of this daemon's GPU. The
  // fleet must have a [planner]. `clock` must outlive this object. `launch`:
  // std::launch::deferred plans within Tick.
  Leader(const config::Fleet& fleet, std::string gpu, PlanStore store,
         const Clock* clock, TimeOfDay time_of_day,
         std::launch launch = std::launch::async);

  void SetFleet(const config::Fleet& fleet);

  // For a fleet of several machines: sets the term of this leader's plans.
  void SetTerm(uint64_t term) { plan_.term = term; }
  // Sets the GPUs of machines that are lost, as the fleet writes them. Once
  // their daemons are silent too, their models go elsewhere.
  void SetLost(std::set<std::string> gpus) { lost_ = std::move(gpus); }

  // To be called once a second. If it returns FailedPrecondition, another
  // process leads now, and this object must not be used further.
  absl::Status Hold() { return store_.Hold(); }

  // A daemon's answer to the plan.
  void Heard(const wire::ReportT& report);

  // Advances a move by one step, and plans when it is time. To be called about
  // once a second.
  void Tick();

  // Returns the plan to send to every daemon; null while nothing is planned.
  std::unique_ptr<wire::PlanT> PlanToSend() const;
  const StandingPlan& plan() const { return plan_; }
  // Returns the number of moves begun since the last call.
  uint64_t TakeNewMoves() { return std::exchange(new_moves_, 0); }
  // Returns the number of causes that keep the leader from planning.
  size_t trouble_count() const { return Troubles().size(); }

  void Describe(wire::PlanStateT* state) const override;
  absl::Status Steer(const wire::SteerT& steer) override;

 private:
  // A record that an engine did not serve when a move wanted it to.
  struct Failure {
    int times = 0;
    uint64_t until_ns = 0;  // it is left alone
  };
  struct Daemon {
    uint64_t heard_ns = 0;
    uint64_t plan_number = 0;
    uint64_t plan_of_proxies = UINT64_MAX;
    uint32_t proxies = 0;
    bool drained = false;
    std::map<std::string, Sighting> engines;
  };

  // True if every GPU of the fleet's places has a daemon that answers.
  bool AllAnswer();
  bool IsFresh(const Daemon& daemon) const;
  // True if the daemon of this GPU (named as in the fleet) was heard lately.
  bool Answers(const std::string& gpu) const;
  // Returns the GPUs of lost_ whose daemons are silent, once each daemon has
  // had time to be heard.
  std::set<std::string> GoneGpus() const;
  void LeaveLost();
  // Learns how much host memory a model's engines take.
  void LearnProcess(const wire::EngineReportT& engine);
  // Returns the fleet, with learnt values where the file gives none.
  config::Fleet PlannedFleet() const;
  // Updates the plan to the fleet's places at once, since everything else
  // relies on that; the next Tick gives it a number.
  void FollowFleet();
  // Without a plan file, makes a plan of the engines that serve.
  void TakeWhatServes();
  Sightings Seen() const;
  bool MayMove() const;
  bool IsWindowFull() const;
  // Notes which engines should serve but do not.
  void Watch(const Sightings& seen);
  void TakeAStep(const Sightings& seen);
  // Decides, after a move has ended, whether its target is left alone for a
  // while.
  void Learn(const Move& move, const Sightings& seen, const StandingPlan& next);
  Experience ExperienceNow() const;
  PlacesOff OffNow() const;
  void BeginToPlan(bool may_move);
  // Takes the result of the planning under way, if it is ready and the plan has
  // not changed since the planning began.
  void EndPlanning();
  void Carry(const Decision& decision);
  // Sets target rates. Returns true if they have changed enough to be
  // published.
  bool TakeRates(const std::map<std::string, double>& rates,
                 StandingPlan* next) const;
  // Sets which of the places that are off should end. Returns true if that
  // changes the plan.
  bool TakeRest(const Rest& rest, StandingPlan* next);
  std::map<std::string, Demand> DemandSeen() const;
  // Gives `next` the next number and puts it in force, unless the plan cannot
  // be written.
  void Publish(StandingPlan next, const std::string& why);
  void Lead();
  std::vector<std::string> Troubles() const;
  void NoteTroubles();
  bool Keep(const StandingPlan& next, const std::string& why);
  absl::Status Pin(const std::string& model, const std::string& gpu);
  absl::Status Record(StandingPlan next, const std::string& what);
  uint64_t HighestNumberHeard() const;

  config::Fleet fleet_;
  const std::string gpu_;
  PlanStore store_;
  const Clock* const clock_;
  const TimeOfDay time_of_day_;
  const uint64_t began_ns_;
  StandingPlan plan_;
  bool has_begun_ = false;  // `plan_` is in force
  bool is_untold_ =
      false;  // the fleet file changed it, and it has no number yet
  DemandWindow window_;
  std::map<std::string, Daemon> daemons_;  // by GPU
  std::map<std::string, GpuMemory> gpus_;
  uint64_t step_ns_;          // when the plan's last step was taken
  uint64_t step_number_ = 0;  // the plan's number then; new rates keep it
  uint64_t moved_ns_;         // when the last move ended, or this leader began
  uint64_t planned_ns_ = 0;
  uint64_t new_moves_ = 0;                         // see TakeNewMoves
  std::set<std::string> rests_;                    // by the last decision
  std::map<std::string, uint64_t> process_bytes_;  // most seen, by model
  std::map<std::string, Failure> failures_;        // by engine
  std::map<std::string, uint64_t> down_since_ns_;  // by engine
  uint64_t answered_ns_ = 0;  // when all daemons first did, without a plan file
  const std::launch launch_;
  StandingPlan planned_from_;
  std::future<absl::StatusOr<Decision>> decision_;  // invalid: none is made
  std::set<std::string> lost_;         // GPUs, as the fleet writes them
  std::vector<std::string> silent_;    // GPUs with silent daemons, in lines
  std::vector<std::string> troubles_;  // of the last planning
  std::string cannot_write_;           // empty: it can
  std::map<std::string, uint64_t> since_ns_;  // by trouble, without figures
};

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_LEADER_H_

#ifndef DAEMON_SCHEDULING_LEAD_PLAN_BOARD_H_
#define DAEMON_SCHEDULING_LEAD_PLAN_BOARD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "daemon/contract/wire/message_types.h"
#include "daemon/contract/wire/newest_plan.h"

namespace fineserve::admission {

// The leader, as this daemon's admission uses it for fsctl (design note 0024).
class LeaderSeat {
 public:
  virtual ~LeaderSeat() = default;

  // Fills in what only the leader knows: everything except `plan` and `leads`.
  virtual void Describe(wire::PlanStateT* state) const = 0;
  // The operator sees the text of an error that this returns.
  virtual absl::Status Steer(const wire::SteerT& steer) = 0;
};

// The plan that this daemon applies, and the leader if it is in this process.
// It survives a change of the fleet, as DrainedEngines does, but not the end of
// the daemon: the leader sends the plan to the next daemon within a second.
// Confined to a thread.
class PlanBoard {
 public:
  // Sets whether this daemon's fleet has a planner. If not, no plan is in
  // force, and none is taken from a leader that has an older fleet file.
  void SetPlanned(bool planned);
  // Does the same as NewestPlan::Take, and logs which plan is in force now.
  absl::Status Take(const wire::PlanT& plan);
  const wire::NewestPlan& newest() const { return newest_; }

  // Sets the leader; null if this daemon does not lead. The leader must outlive
  // its seat.
  void SetLeader(LeaderSeat* leader) { leader_ = leader; }
  LeaderSeat* leader() const { return leader_; }

  // Returns the number of plans refused because they were older than the known
  // one, for example from a leader that has slept through an election.
  uint64_t refused() const { return refused_; }

  // Counts moves that leaders in this process began.
  void CountMoves(uint64_t more) { moves_ += more; }
  uint64_t moves() const { return moves_; }

  // Sets and logs the reason why no leader plans for this daemon, in one line
  // with the fix; empty if a leader does, or will soon.
  void SetTrouble(const std::string& trouble);
  const std::string& trouble() const { return trouble_; }

 private:
  bool planned_ = true;
  wire::NewestPlan newest_;
  LeaderSeat* leader_ = nullptr;
  uint64_t moves_ = 0;
  uint64_t refused_ = 0;
  std::string trouble_;
};

}  // namespace fineserve::admission

#endif  // DAEMON_SCHEDULING_LEAD_PLAN_BOARD_H_

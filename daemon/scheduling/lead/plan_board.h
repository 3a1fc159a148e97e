#ifndef DAEMON_SCHEDULING_LEAD_PLAN_BOARD_H_
#define DAEMON_SCHEDULING_LEAD_PLAN_BOARD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "daemon/contract/wire/message_types.h"
#include "daemon/contract/wire/newest_plan.h"

namespace fineserve::admission {

// The leader, as this daemon's admission asks it for fsctl (design note 0024).
class LeaderSeat {
 public:
  virtual ~LeaderSeat() = default;

  // Fills in what only the leader knows: everything but `plan` and `leads`.
  virtual void Describe(wire::PlanStateT* state) const = 0;
  // The operator sees the text of an error.
  virtual absl::Status Steer(const wire::SteerT& steer) = 0;
};

// The plan that this daemon applies, and the leader if it is in this process.
// It outlives a change of the fleet, as DrainedEngines does, but not the
// daemon: the leader sends the plan to the next daemon within a second.
// Confined to a thread.
class PlanBoard {
 public:
  // Sets whether this daemon's fleet has a planner. Without one no plan holds,
  // and none is taken from a leader that has an older fleet file.
  void SetPlanned(bool planned);
  // Does the same as NewestPlan::Take, and logs which plan holds now.
  absl::Status Take(const wire::PlanT& plan);
  const wire::NewestPlan& newest() const { return newest_; }

  // Null: this daemon does not lead. The leader must outlive its seat.
  void SetLeader(LeaderSeat* leader) { leader_ = leader; }
  LeaderSeat* leader() const { return leader_; }

  // Number of plans that were older than the known one, for example of a leader
  // that has slept through an election.
  uint64_t refused() const { return refused_; }

  // Moves that leaders in this process began.
  void CountMoves(uint64_t more) { moves_ += more; }
  uint64_t moves() const { return moves_; }

  // Sets the reason why no leader plans for this daemon, in one line with the
  // fix; empty: one does, or will soon. Says it in the log.
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

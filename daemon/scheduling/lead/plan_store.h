#ifndef DAEMON_SCHEDULING_LEAD_PLAN_STORE_H_
#define DAEMON_SCHEDULING_LEAD_PLAN_STORE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/scheduling/lead/lead_lock.h"
#include "daemon/scheduling/lead/standing_plan.h"

namespace fineserve::lead {

// State that outlives a leader: three files in the runtime folder (0700).
//
//   leader.lock    LeadLock
//   plan.json      the standing plan, replaced whole
//   plan.history   one line of JSON per plan, the newest last
//
// The holder of this object leads. Confined to a thread; no call blocks longer
// than a small file's writing.
class PlanStore {
 public:
  // Opens the store for the process that leads. A plan of another fleet is set
  // aside, as plan.json.other.
  static PlanStore Open(const std::string& folder, LeadLock lead);
  // Takes the lead of a folder where one fleet is planned. FailedPrecondition
  // if another process has it.
  static absl::StatusOr<PlanStore> Open(const std::string& folder);
  // For a leader without followers: keeps its history in memory and writes no
  // file.
  static PlanStore Unkept() { return PlanStore(absl::nullopt, ""); }

  // Returns the plan of the last leader: NotFound if there is none,
  // InvalidArgument if the file is not one of ours.
  absl::StatusOr<StandingPlan> Read() const;
  // To be called once a second. Calls LeadLock::Hold, and writes the plan again
  // if it was removed, or if a former leader that had been stopped during a
  // Write replaced it on waking. FailedPrecondition if another process leads
  // now.
  absl::Status Hold();
  // True if the last leader is still alive but stopped, and so has only lost
  // the lead.
  bool was_taken_from_stopped() const {
    return lead_ && lead_->was_taken_from_stopped();
  }
  // Replaces the plan, and adds the line to the history if it is not empty. If
  // the plan cannot be written (Unavailable), or another process leads now
  // (FailedPrecondition), the former plan stays.
  absl::Status Write(const StandingPlan& plan, const std::string& history_line);
  // The last lines, oldest first.
  std::vector<std::string> History(size_t most) const;

 private:
  PlanStore(absl::optional<LeadLock> lead, std::string folder);

  absl::Status Put(const std::string& text);
  void Remember(const std::string& line);

  absl::optional<LeadLock> lead_;  // none: nothing is kept
  std::string folder_;
  std::vector<std::string> history_;  // as in its file
  std::string text_;                  // of the plan written last; or empty
  FileMark written_;                  // its file
};

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_PLAN_STORE_H_

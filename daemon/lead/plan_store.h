#ifndef DAEMON_LEAD_PLAN_STORE_H_
#define DAEMON_LEAD_PLAN_STORE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/lead/standing_plan.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::lead {

// What outlives a leader: three files in the runtime folder (0700).
//
//   leader.lock    locked (flock) by the one daemon that leads; the kernel
//                  releases it when that process ends
//   plan.json      the standing plan, replaced whole
//   plan.history   one line of JSON per plan, the newest last
//
// The holder of this object leads. Confined to a thread; no call blocks longer
// than a small file's writing.
class PlanStore {
 public:
  // Takes the lead. FailedPrecondition if another process has it.
  static absl::StatusOr<PlanStore> Open(const std::string& folder);
  // Of a leader that nobody follows: remembers its history, and keeps no file.
  static PlanStore Unkept() { return PlanStore(driver::Descriptor(), ""); }

  // The plan of the last leader: NotFound if there is none, InvalidArgument if
  // the file is none of ours.
  absl::StatusOr<StandingPlan> Read() const;
  // Replaces the plan and adds a line to the history, if it is not empty. If
  // the plan cannot be written (Unavailable), the old one stays.
  absl::Status Write(const StandingPlan& plan, const std::string& history_line);
  // The last lines, oldest first.
  std::vector<std::string> History(size_t most) const;

 private:
  PlanStore(driver::Descriptor lock, std::string folder);

  void Remember(const std::string& line);

  driver::Descriptor lock_;
  std::string folder_;                // empty: nothing is kept
  std::vector<std::string> history_;  // as in its file
};

}  // namespace fineserve::lead

#endif  // DAEMON_LEAD_PLAN_STORE_H_

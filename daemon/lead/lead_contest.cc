#include "daemon/lead/lead_contest.h"

#include "absl/strings/str_cat.h"

namespace fineserve::lead {
namespace {

// The daemons of the fleet that was led last try for the lead every second.
constexpr uint64_t kFirstComeNs = 10'000'000'000;

}  // namespace

absl::StatusOr<LeadLock> LeadContest::Try(uint64_t now_ns) {
  trouble_.clear();
  const Contender leader = LeaderNamed(folder_);
  if (!LeadsAnotherFleet(leader, who_)) return LeadLock::Take(folder_, who_);
  if (IsLed(folder_)) {
    free_since_ns_ = 0;
    trouble_ = absl::StrCat(
        "the fleet ", who_.fleet, " is not planned: pid ", leader.pid, " (",
        leader.gpu, ") leads the fleet ", leader.fleet,
        " in the same runtime folder, ", folder_,
        "; give all daemons the same --fleet, or those of one fleet another "
        "$FINESERVE_RUNTIME_DIR");
    return absl::FailedPreconditionError(trouble_);
  }
  if (free_since_ns_ == 0) free_since_ns_ = now_ns;
  if (now_ns - free_since_ns_ >= kFirstComeNs) {
    return LeadLock::Take(folder_, who_);
  }
  return absl::FailedPreconditionError("daemons of another fleet come first");
}

}  // namespace fineserve::lead

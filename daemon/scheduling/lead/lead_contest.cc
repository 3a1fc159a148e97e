#include "daemon/scheduling/lead/lead_contest.h"

#include "absl/strings/str_cat.h"

namespace fineserve::lead {
namespace {

// Head start of the daemons of the last fleet that was led, which try for the
// lead every second.
constexpr uint64_t kFirstComeNs = 10'000'000'000;
// How long a leader may be silent before it may lose the lead; a healthy leader
// gives a sign every second. Longer than any turn of its loop should take;
// taking the lead too early does no harm.
constexpr uint64_t kDoubtNs = 5'000'000'000;
constexpr uint64_t kStoppedNs = 15'000'000'000;

}  // namespace

absl::StatusOr<LeadLock> LeadContest::Try(uint64_t now_ns) {
  trouble_.clear();
  const Contender leader = LeaderNamed(folder_);
  if (!LeadsAnotherFleet(leader, who_)) return TryOwn(leader, now_ns);
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

absl::StatusOr<LeadLock> LeadContest::TryOwn(const Contender& leader,
                                             uint64_t now_ns) {
  absl::StatusOr<LeadLock> lead = LeadLock::Take(folder_, who_);
  if (!absl::IsFailedPrecondition(lead.status())) return lead;
  const FileMark mark = MarkOfLead(folder_);
  if (mark != mark_) {
    mark_ = mark;
    mark_since_ns_ = now_ns;
  }
  const uint64_t idle_ns = now_ns - mark_since_ns_;
  if (idle_ns >= kStoppedNs) {
    return LeadLock::TakeFromStopped(folder_, who_, mark);
  }
  if (idle_ns >= kDoubtNs) {
    trouble_ = absl::StrCat(
        "pid ", leader.pid, " (", leader.gpu,
        ") leads and does nothing: it is stopped or hangs; continue it with "
        "kill -CONT ",
        leader.pid,
        ", or end it; this daemon takes the lead "
        "otherwise, ",
        kStoppedNs / 1'000'000'000, " s after its last sign");
  }
  return lead;
}

}  // namespace fineserve::lead

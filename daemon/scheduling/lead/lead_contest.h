#ifndef DAEMON_SCHEDULING_LEAD_LEAD_CONTEST_H_
#define DAEMON_SCHEDULING_LEAD_LEAD_CONTEST_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "daemon/scheduling/lead/lead_lock.h"

namespace fineserve::lead {

// A daemon's attempts to take the lead. Only one fleet is planned in a runtime
// folder: a daemon of another fleet does not lead while the first fleet has a
// leader, nor right after, when the first fleet's daemons take the lead from
// each other. A daemon also takes the lead from a leader of its own fleet that
// is stopped (SIGSTOP) or hangs. Confined to a thread.
class LeadContest {
 public:
  LeadContest(std::string folder, Contender who)
      : folder_(std::move(folder)), who_(std::move(who)) {}

  // Tries for the lead, about once a second; times are CLOCK_MONOTONIC.
  // FailedPrecondition if the lead cannot be taken now.
  absl::StatusOr<LeadLock> Try(uint64_t now_ns);

  // Returns why this daemon's fleet is not planned, in one line with the fix,
  // as of the last Try. If it is empty, the fleet is planned, or may be soon.
  const std::string& trouble() const { return trouble_; }

 private:
  absl::StatusOr<LeadLock> TryOwn(const Contender& leader, uint64_t now_ns);

  const std::string folder_;
  const Contender who_;
  FileMark mark_;               // of the leader's file
  uint64_t mark_since_ns_ = 0;  // since when it has not changed
  uint64_t free_since_ns_ =
      0;  // since when the other fleet's lead is; 0: it is not
  std::string trouble_;
};

}  // namespace fineserve::lead

#endif  // DAEMON_SCHEDULING_LEAD_LEAD_CONTEST_H_

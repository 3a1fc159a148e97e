#ifndef DAEMON_SCHEDULING_OVERLOAD_DROP_PLAN_H_
#define DAEMON_SCHEDULING_OVERLOAD_DROP_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/scheduling/local/predict/peer_reads.h"

// Decides which weights of equal replicas become KV (design note 0047). Pure.

namespace fineserve::overload {

// Weights that are dropped together: those of a layer, or an embedding.
struct Part {
  uint64_t bytes = 0;
  uint64_t step_bytes = 0;  // of these, that a step reads
  double work = 0;          // share of a step's work that they take part in
};

// Returns the indices of `parts` in the order in which they are dropped: first
// the parts whose reads are hidden best, by bytes read for each share of the
// work.
std::vector<size_t> DropOrder(const std::vector<Part>& parts);

// A part that a replica has dropped, and reads from another replica, its
// lender.
struct Loan {
  size_t part = 0;
  uint32_t lender = 0;  // its place; beyond all: none of the group

  bool operator==(const Loan&) const = default;
};
struct Loans {
  std::vector<Loan> all;
  uint64_t bytes = 0;  // that all of them save
};
// The loans of each of the replicas. No replica lends a part that it has
// dropped, so each part exists.
using Lending = std::vector<Loans>;

// Lets each replica drop parts until it has dropped as many bytes as it wants.
// The loans of `lending` stay as they are. A replica with nullopt takes no
// part: it neither drops nor lends more. The replica that lacks the most is
// next, so that if the parts are not enough, all lack the same, within a part.
//
// A replica that lends a part does not drop it. So all read a part from the
// same lender, and the others may drop it. If that one would lend more than a
// copy a step, which no member of a balanced group does, the part is read from
// the one that lends the least.
Lending Lend(const std::vector<Part>& parts,
             const std::vector<absl::optional<uint64_t>>& wanted,
             Lending lending);

// Returns the reads of each replica's steps, with links of `link_bytes_per_us`
// into and out of each replica. Readers of one lender share its link evenly.
std::vector<sched::PeerReads> ReadsOf(const Lending& lending,
                                      const std::vector<Part>& parts,
                                      double link_bytes_per_us, double reread);

// KunServe's plan (its Algorithm 6): groups of replicas in which each group
// keeps one copy of the weights. While fewer than `short_bytes` are freed, the
// two smallest groups become one, which frees a copy. Of groups of the same
// size, those with the most load are taken.
struct Group {
  std::vector<uint32_t> replicas;
  double load = 0;
};
struct MergePlan {
  std::vector<Group> groups;
  uint64_t freed_bytes = 0;
  uint32_t merges = 0;
};
MergePlan MergeGroups(std::vector<Group> groups, uint64_t copy_bytes,
                      uint64_t short_bytes);

}  // namespace fineserve::overload

#endif  // DAEMON_SCHEDULING_OVERLOAD_DROP_PLAN_H_

#ifndef DAEMON_SCHEDULING_OVERLOAD_DROP_PLAN_H_
#define DAEMON_SCHEDULING_OVERLOAD_DROP_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/scheduling/local/predict/peer_reads.h"

// Which weights of equal replicas become KV (design note 0047). Pure.

namespace fineserve::overload {

// Weights that are dropped together: a layer's, or an embedding.
struct Part {
  uint64_t bytes = 0;
  uint64_t step_bytes = 0;  // of these, that a step reads
  double work = 0;          // share of a step's work that they take part in
};

// The places of `parts` in the order in which they are dropped: first those
// whose reads hide best, by bytes read for each share of the work.
std::vector<size_t> DropOrder(const std::vector<Part>& parts);

// Two replicas that lend each other copies. Each part is dropped by one of them
// at most, so that it exists.
struct Lending {
  struct Side {
    std::vector<size_t> dropped;  // parts
    uint64_t bytes = 0;
  };
  Side a, b;
};

// Drops as many parts as `a_bytes` and `b_bytes` ask for, beyond those of
// `lending`, which stay where they are: no side drops a further part if it has
// as much as it asked for. If all parts are not enough, both lack as much,
// within a part.
Lending Lend(const std::vector<Part>& parts, uint64_t a_bytes, uint64_t b_bytes,
             Lending lending = {});

// The reads of a side's steps from its peer, at so many bytes/µs.
sched::PeerReads ReadsOf(const Lending::Side& side,
                         const std::vector<Part>& parts,
                         double link_bytes_per_us, double reread);

// KunServe's plan (its Algorithm 6): groups of replicas that keep one copy of
// the weights each. While fewer than `short_bytes` are freed, the two smallest
// groups become one, which frees a copy. Of groups of a size those are taken
// that have the most load.
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

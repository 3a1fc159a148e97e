#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_ADAPTIVE_BATCH_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_ADAPTIVE_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/scheduling/local/policy/waiting_tree.h"
#include "daemon/scheduling/local/predict/ids.h"

namespace fineserve::sched {

// Algorithm 2 of the paper (§6.3, SLO-aware adaptive batching), output for
// output. The paper's loop removes the longest request until the soonest
// deadline of the rest is met. Longest first ignores deadlines: after j
// removals the n − j shortest are left. So with T_k = TTFT of the k shortest
// and d_k their soonest deadline, the loop ends at the largest k with
//
//   now + T_k < d_k                                                    (meets)
//
// If TTFT never decreases with more tokens, `meets` holds up to some k and
// fails after it: WaitingTree::LongestPrefix finds it in O(log n)
// (adaptive_policy.h). Here is the form for a batch, O(n log n), for any TTFT.

// Returns the time from now until each of several requests, with
// `prompt_tokens` in total, has its first token.
using Ttft = absl::FunctionRef<Micros(uint64_t prompt_tokens)>;

// An engine's present capacity.
struct Caps {
  uint32_t requests = 0;  // the paper's N_max; 0 admits none
  uint64_t tokens = 0;    // T_max; a first request may exceed it: it is chunked
};

struct Batch {
  std::vector<RequestId> start;  // soonest deadline first
  std::vector<RequestId>
      late;  // late even if each ran alone; in the order given
};

Batch FormBatch(const std::vector<Waiting>& waiting, Micros now, Ttft ttft,
                Caps caps);

// The paper's trim(S, N_max, T_max): returns, of the requests ordered by
// deadline, those before the first one that does not fit.
std::vector<RequestId> Trim(const std::vector<Waiting>& soonest_first,
                            Caps caps);

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_ADAPTIVE_BATCH_H_

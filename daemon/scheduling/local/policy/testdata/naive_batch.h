#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_NAIVE_BATCH_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_NAIVE_BATCH_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "daemon/scheduling/local/policy/adaptive_batch.h"

namespace fineserve::sched {

// Algorithm 2 as the paper prints it, line for line: the reference for tests
// and the baseline of the bench. TTFT(S) is computed from the set each time,
// and the set is searched for the longest request: O(n²).
inline Batch NaiveBatch(const std::vector<Waiting>& waiting, Micros now,
                        Ttft ttft, Caps caps) {
  Batch batch;
  std::vector<Waiting> s;
  for (const Waiting& r : waiting) {  // lines 3-8
    if (now + ttft(r.tokens) < r.deadline) {
      s.push_back(r);
    } else {
      batch.late.push_back(r.id);
    }
  }
  std::sort(s.begin(), s.end(), Sooner);  // line 9
  while (!s.empty()) {                    // lines 10-15
    uint64_t tokens = 0;
    for (const Waiting& r : s) tokens += r.tokens;
    if (now + ttft(tokens) < s.front().deadline) break;
    s.erase(std::max_element(s.begin(), s.end(), Shorter));
  }
  uint64_t tokens = 0;  // line 16, by dropping from the end
  for (const Waiting& r : s) tokens += r.tokens;
  while (!s.empty() &&
         (s.size() > caps.requests || (tokens > caps.tokens && s.size() > 1))) {
    tokens -= s.back().tokens;
    s.pop_back();
  }
  for (const Waiting& r : s) batch.start.push_back(r.id);
  return batch;
}

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_TESTDATA_NAIVE_BATCH_H_

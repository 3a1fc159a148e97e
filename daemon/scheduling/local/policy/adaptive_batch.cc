#include "daemon/scheduling/local/policy/adaptive_batch.h"

#include <algorithm>

namespace fineserve::sched {
namespace {

// Returns how many of the shortest requests can go together: the largest k that
// meets the soonest deadline among them. Searches downward, since TTFT need not
// be monotone.
size_t LargestThatMeets(const std::vector<Waiting>& shortest_first, Micros now,
                        Ttft ttft) {
  std::vector<Micros> soonest;
  uint64_t tokens = 0;
  for (const Waiting& r : shortest_first) {
    soonest.push_back(soonest.empty() ? r.deadline
                                      : std::min(soonest.back(), r.deadline));
    tokens += r.tokens;
  }
  size_t k = shortest_first.size();
  for (; k > 0 && now + ttft(tokens) >= soonest[k - 1]; --k) {
    tokens -= shortest_first[k - 1].tokens;
  }
  return k;
}

}  // namespace

Batch FormBatch(const std::vector<Waiting>& waiting, Micros now, Ttft ttft,
                Caps caps) {
  Batch batch;
  std::vector<Waiting> tentative;
  for (const Waiting& r : waiting) {
    if (now + ttft(r.tokens) < r.deadline) {
      tentative.push_back(r);
    } else {
      batch.late.push_back(r.id);
    }
  }
  std::sort(tentative.begin(), tentative.end(), Shorter);
  tentative.resize(LargestThatMeets(tentative, now, ttft),
                   Waiting{0, RequestId{0}, 0});
  std::sort(tentative.begin(), tentative.end(), Sooner);
  batch.start = Trim(tentative, caps);
  return batch;
}

std::vector<RequestId> Trim(const std::vector<Waiting>& soonest_first,
                            Caps caps) {
  std::vector<RequestId> fit;
  uint64_t tokens = 0;
  for (const Waiting& r : soonest_first) {
    tokens += r.tokens;
    if (fit.size() == caps.requests) break;
    if (tokens > caps.tokens && !fit.empty()) break;
    fit.push_back(r.id);
  }
  return fit;
}

}  // namespace fineserve::sched

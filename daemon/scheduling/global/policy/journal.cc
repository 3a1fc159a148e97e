#include "daemon/scheduling/global/policy/journal.h"

#include <algorithm>
#include <utility>

namespace fineserve::plan {

void NoteRejections(const Assignment& a, uint32_t replica, Charge charge,
                    Decision* decision) {
  const Problem& p = a.problem();
  const Replica& r = p.replicas[replica];
  for (uint32_t g = 0; g < p.gpus.size(); ++g) {
    if (a.Takes(g, replica, charge)) continue;
    if (decision->rejections.size() == Journal::kKept) {
      ++decision->more_rejections;
      continue;
    }
    if (!p.MayUse(r, g)) {
      decision->rejections.push_back({g, Rejection::Why::kPinnedElsewhere});
    } else if (a.Sibling(replica, g)) {
      decision->rejections.push_back({g, Rejection::Why::kSibling});
    } else if (const double missing = a.HostMissing(p.node_of[g], replica);
               missing > 0) {
      decision->rejections.push_back(
          {g, Rejection::Why::kNoHostMemory, missing});
    } else {
      decision->rejections.push_back(
          {g, Rejection::Why::kNoRoom, a.Missing(g, replica, charge)});
    }
  }
}

void NoteCandidates(std::vector<Candidate> candidates, bool least_is_best,
                    Decision* decision) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& x, const Candidate& y) {
                     return least_is_best ? x.score < y.score
                                          : x.score > y.score;
                   });
  if (candidates.size() > Journal::kKept) {
    decision->more_candidates = candidates.size() - Journal::kKept;
    candidates.resize(Journal::kKept);
  }
  decision->candidates = std::move(candidates);
}

}  // namespace fineserve::plan

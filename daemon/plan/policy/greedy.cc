#include "daemon/plan/policy/greedy.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace fineserve::plan {

std::vector<uint32_t> Descending(
    const Problem& problem, absl::FunctionRef<double(const Replica&)> key) {
  std::vector<uint32_t> order(problem.replicas.size());
  std::iota(order.begin(), order.end(), 0u);
  std::vector<double> keys;
  for (const Replica& r : problem.replicas) keys.push_back(key(r));
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t x, uint32_t y) { return keys[x] > keys[y]; });
  return order;
}

void PlaceInOrder(const std::vector<uint32_t>& order, Charge charge,
                  Scorer scorer, Assignment* a, Journal* journal) {
  for (const uint32_t r : order) {
    Group best;
    Score best_score;
    Decision decision{r, {}, {}};
    std::vector<Candidate> candidates;
    if (journal != nullptr) NoteRejections(*a, r, charge, &decision);
    ForEachGroup(*a, r, charge, [&](const Group& group) {
      const absl::optional<Score> s = scorer(*a, r, group);
      if (!s.has_value()) return;
      if (journal != nullptr) candidates.push_back({group, s->score});
      const bool better =
          s->score > best_score.score ||
          (s->score == best_score.score && s->tie > best_score.tie);
      if (!best.empty() && !better) return;
      best = group;
      best_score = *s;
    });
    if (!best.empty()) a->Put(r, best);
    if (journal == nullptr) continue;
    NoteCandidates(std::move(candidates), journal->least_is_best, &decision);
    journal->decisions.push_back(std::move(decision));
  }
}

}  // namespace fineserve::plan

#include "daemon/plan/exact/branch_and_bound.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "daemon/plan/exact/pooled_bound.h"
#include "daemon/plan/model/groups.h"

namespace fineserve::plan {
namespace {

class Search {
 public:
  Search(const Problem& p, const Assignment& start, uint64_t most_visited)
      : p_(p),
        now_(p),
        board_(&now_),
        best_{start, {}},
        most_visited_(most_visited) {
    Assignment copy = start;
    best_.worth = Board(&copy).worth();
    order_.resize(p.replicas.size());
    std::iota(order_.begin(), order_.end(), 0u);
    std::stable_sort(order_.begin(), order_.end(),
                     [&p](uint32_t x, uint32_t y) {
                       const Replica &a = p.replicas[x], &b = p.replicas[y];
                       // By model too, so that its replicas come together.
                       return std::pair(b.tp * b.Least(), a.model) <
                              std::pair(a.tp * a.Least(), b.model);
                     });
    for (uint32_t r = 0; r < p.replicas.size(); ++r) {
      const TokenCurve& c = p.replicas[r].curve;
      const double batch =
          std::min(c.BatchFor(c.demand, 1), MostKv(p, r) / c.sequence_bytes);
      alone_.push_back(batch > 0 ? c.Speed(batch, 1) : 0);
    }
  }

  Optimum Run() {
    best_.proven = Visit(0);
    best_.visited = visited_;
    return std::move(best_);
  }

 private:
  // Models that could be hosted if the rest of the order found room.
  uint32_t CouldHost(size_t depth) const {
    uint32_t could = now_.hosted_models();
    std::vector<bool> counted(p_.models.size());
    for (size_t i = depth; i < order_.size(); ++i) {
      const uint32_t model = p_.replicas[order_[i]].model;
      if (now_.HostedReplicas(model) > 0 || counted[model]) continue;
      counted[model] = true;
      ++could;
    }
    return could;
  }

  // No completion of this branch has more goodput.
  double Bound(size_t depth, bool all_must) const {
    double bound = board_.worth().goodput;
    std::vector<uint32_t> must, may;
    for (size_t i = 0; i < order_.size(); ++i) {
      const uint32_t r = order_[i];
      if (i < depth) {
        if (now_.Hosted(r)) must.push_back(r);
        continue;
      }
      bound += alone_[r];
      const bool only = p_.sizings[p_.replicas[r].model].replicas == 1;
      (all_must && only ? must : may).push_back(r);
    }
    return std::min(bound, PooledBound(p_, must, may));
  }

  bool Hopeless(size_t depth) const {
    const uint32_t could = CouldHost(depth);
    if (could != best_.worth.hosted) return could < best_.worth.hosted;
    return Bound(depth, true) <=
           best_.worth.goodput * (1 + kRounding) + kRounding;
  }

  // Replicas of a model are alike, so they lie in the order of their groups:
  // those that lie nowhere come last.
  bool InOrder(size_t depth, const Group& group) const {
    if (depth == 0) return true;
    const uint32_t before = order_[depth - 1];
    if (p_.replicas[before].model != p_.replicas[order_[depth]].model) {
      return true;
    }
    return now_.Hosted(before) && !(group < now_.GroupOf(before));
  }

  // Returns false once the limit is reached.
  bool Visit(size_t depth) {
    if (++visited_ > most_visited_) return false;
    if (depth == order_.size()) {
      if (Better(board_.worth(), best_.worth)) {
        best_.worth = board_.worth();
        best_.assignment = now_;
      }
      return true;
    }
    if (Hopeless(depth)) return true;
    const uint32_t r = order_[depth];
    std::vector<Group> groups;
    ForEachGroup(now_, r, Charge::kLeast, [&](const Group& g) {
      if (InOrder(depth, g)) groups.push_back(g);
    });
    for (const Group& group : groups) {
      board_.Put(r, group);
      const bool whole = Visit(depth + 1);
      board_.Remove(r);
      if (!whole) return false;
    }
    return Visit(depth + 1);
  }

  static constexpr double kRounding = 1e-9;

  const Problem& p_;
  Assignment now_;
  Board board_;
  Optimum best_;
  const uint64_t most_visited_;
  uint64_t visited_ = 0;
  std::vector<uint32_t> order_;
  std::vector<double> alone_;  // tokens/s on an empty group, by replica
};

}  // namespace

Optimum FindOptimum(const Problem& problem, const Assignment& start,
                    uint64_t most_visited) {
  return Search(problem, start, most_visited).Run();
}

}  // namespace fineserve::plan

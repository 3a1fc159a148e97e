#include "daemon/scheduling/global/exact/branch_and_bound.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "daemon/scheduling/global/exact/pooled_bound.h"
#include "daemon/scheduling/global/model/groups.h"

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
                       // Also sorts by model, so that a model's replicas are
                       // adjacent.
                       return std::pair(b.tp * b.Least(), a.model) <
                              std::pair(a.tp * a.Least(), b.model);
                     });
    for (uint32_t m = 0; m < p.models.size(); ++m) {
      const uint32_t first = p.first_replica[m];
      const TokenCurve& c = p.replicas[first].curve;
      const double batch = std::min(c.BatchFor(c.demand, 1),
                                    MostKv(p, first) / c.sequence_bytes);
      const double replicas = p.first_replica[m + 1] - first;
      alone_.push_back(batch > 0 ? replicas * c.Speed(batch, 1) : 0);
    }
  }

  Optimum Run() {
    best_.proven = Visit(0, 0);
    best_.visited = visited_;
    return std::move(best_);
  }

 private:
  // Returns how many models could be hosted if the rest of the order found
  // room.
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

  // Returns an upper bound on the goodput of the completions of this branch
  // that host every model they can. `whole` is the goodput after the last model
  // whose replicas were all decided. While replicas of the next model are
  // undecided, the present goodput says little, because they share its rate.
  double Bound(size_t depth, double whole) const {
    std::vector<uint32_t> left(p_.models.size());
    for (size_t i = depth; i < order_.size(); ++i) {
      ++left[p_.replicas[order_[i]].model];
    }
    double bound = whole;
    std::vector<Hosting> hostings;
    for (uint32_t m = 0; m < p_.models.size(); ++m) {
      const uint32_t hosted = now_.HostedReplicas(m);
      if (left[m] > 0) bound += alone_[m];
      if (hosted + left[m] == 0) continue;
      hostings.push_back({m, std::max(1u, hosted), hosted + left[m]});
    }
    return std::min(bound, PooledBound(p_, hostings));
  }

  bool Hopeless(size_t depth, double whole) const {
    const uint32_t could = CouldHost(depth);
    if (could != best_.worth.hosted) return could < best_.worth.hosted;
    return Bound(depth, whole) <=
           best_.worth.goodput * (1 + kRounding) + kRounding;
  }

  // True if the group keeps the order: replicas of a model are alike, so they
  // follow the order of their groups, and those without a place come last.
  bool InOrder(size_t depth, const Group& group) const {
    if (BeginsModel(depth)) return true;
    const uint32_t before = order_[depth - 1];
    return now_.Hosted(before) && !(group < now_.GroupOf(before));
  }

  bool BeginsModel(size_t depth) const {
    return depth == 0 || p_.replicas[order_[depth - 1]].model !=
                             p_.replicas[order_[depth]].model;
  }

  // Returns false once the limit is reached.
  bool Visit(size_t depth, double whole) {
    if (++visited_ > most_visited_) return false;
    if (depth == order_.size()) {
      if (Better(board_.worth(), best_.worth)) {
        best_.worth = board_.worth();
        best_.assignment = now_;
      }
      return true;
    }
    if (BeginsModel(depth)) whole = board_.worth().goodput;
    if (Hopeless(depth, whole)) return true;
    const uint32_t r = order_[depth];
    std::vector<Group> groups;
    ForEachGroup(now_, r, Charge::kLeast, [&](const Group& g) {
      if (InOrder(depth, g)) groups.push_back(g);
    });
    for (const Group& group : groups) {
      board_.Put(r, group);
      const bool all = Visit(depth + 1, whole);
      board_.Remove(r);
      if (!all) return false;
    }
    return Visit(depth + 1, whole);
  }

  static constexpr double kRounding = 1e-9;

  const Problem& p_;
  Assignment now_;
  Board board_;
  Optimum best_;
  const uint64_t most_visited_;
  uint64_t visited_ = 0;
  std::vector<uint32_t> order_;
  std::vector<double>
      alone_;  // tokens/s of all replicas on empty groups, by model
};

}  // namespace

Optimum FindOptimum(const Problem& problem, const Assignment& start,
                    uint64_t most_visited) {
  return Search(problem, start, most_visited).Run();
}

}  // namespace fineserve::plan

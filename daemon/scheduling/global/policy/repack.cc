#include "daemon/scheduling/global/policy/repack.h"

#include <algorithm>
#include <set>
#include <utility>

#include "daemon/scheduling/global/model/groups.h"

namespace fineserve::plan {
namespace {

// A partial assignment: that of its parent, and the place of one more replica.
struct Node {
  size_t parent = 0;  // in the layer before
  Group group;        // empty: no place
  Worth worth;
};
using Layer = std::vector<Node>;

bool Same(const Worth& a, const Worth& b) {
  return !Better(a, b) && !Better(b, a);
}

class Beam {
 public:
  Beam(const std::vector<uint32_t>& replicas, const std::vector<uint32_t>& gpus,
       size_t width, Board* board, uint64_t* tries)
      : width_(width),
        board_(*board),
        a_(board->assignment()),
        p_(a_.problem()),
        open_(p_.gpus.size()),
        tries_(*tries) {
    for (const uint32_t g : gpus) {
      open_[g] = true;
      if (nodes_.empty() || nodes_.back() != p_.node_of[g]) {
        nodes_.push_back(p_.node_of[g]);
      }
    }
    SetOrder(replicas);
  }

  bool Run() {
    const Worth before = board_.worth();
    Path home;
    for (const uint32_t r : order_) home.push_back(a_.GroupOf(r));
    const Path best = Search();
    GoTo(best.empty() ? home : best);
    if (!best.empty() && Better(board_.worth(), before)) return true;
    GoTo(home);
    return false;
  }

 private:
  using Path = std::vector<Group>;  // by place in the order

  void SetOrder(const std::vector<uint32_t>& replicas) {
    std::vector<uint32_t> out(p_.models.size());
    for (const uint32_t r : replicas) out[p_.replicas[r].model] += a_.Hosted(r);
    std::set<uint32_t> first;  // models
    std::vector<std::pair<std::pair<bool, double>, uint32_t>> keys;
    for (const uint32_t r : replicas) {
      const Replica& replica = p_.replicas[r];
      const bool must =
          a_.HostedReplicas(replica.model) == out[replica.model] &&
          first.insert(replica.model).second;
      keys.push_back({{!must, -(replica.tp * replica.Least())}, r});
    }
    std::sort(keys.begin(), keys.end());
    for (const auto& [key, r] : keys) order_.push_back(r);
  }

  // Returns the places of all replicas in the best assignment found; empty if
  // no tries are left.
  Path Search() {
    layers_ = {Layer(1)};
    GoTo(Path(order_.size()));
    layers_[0][0].worth = board_.worth();
    for (size_t depth = 0; depth < order_.size(); ++depth) {
      Layer next;
      for (size_t n = 0; n < layers_[depth].size(); ++n) {
        if (tries_ == 0) return {};
        Extend(depth, n, &next);
      }
      layers_.push_back(Best(next));
    }
    return PathTo(order_.size(), 0);
  }

  // Appends a node for every place of the next replica.
  void Extend(size_t depth, size_t n, Layer* next) {
    GoTo(PathTo(depth, n));
    const uint32_t r = order_[depth];
    next->emplace_back();
    next->back().parent = n;
    next->back().worth = layers_[depth][n].worth;
    std::vector<Group> groups;
    for (const uint32_t node : nodes_) {
      ForEachGroupAmong(
          a_, r, node,
          [&](uint32_t g) {
            return open_[g] && a_.Takes(g, r, Charge::kLeast);
          },
          [&groups](const Group& group) { groups.push_back(group); });
    }
    for (const Group& group : groups) {
      if (tries_ == 0) return;
      --tries_;
      next->push_back({n, group, board_.WorthWith(r, group)});
    }
  }

  // Returns the best nodes, in order. If several are worth the same, as on
  // identical GPUs, keeps one.
  Layer Best(const Layer& layer) const {
    Layer best;
    for (const Node& node : layer) {
      auto at = best.end();
      while (at != best.begin() && Better(node.worth, (at - 1)->worth)) --at;
      if (at != best.begin() && Same(node.worth, (at - 1)->worth)) continue;
      best.insert(at, node);
      if (best.size() > width_) best.pop_back();
    }
    return best;
  }

  Path PathTo(size_t depth, size_t n) const {
    Path path(order_.size());
    for (; depth > 0; --depth) {
      path[depth - 1] = layers_[depth][n].group;
      n = layers_[depth][n].parent;
    }
    return path;
  }

  void GoTo(const Path& path) {
    for (size_t i = 0; i < path.size(); ++i) {
      const uint32_t r = order_[i];
      if (a_.Hosted(r) && a_.GroupOf(r) != path[i]) board_.Remove(r);
    }
    for (size_t i = 0; i < path.size(); ++i) {
      const uint32_t r = order_[i];
      if (!path[i].empty() && !a_.Hosted(r)) board_.Put(r, path[i]);
    }
  }

  const size_t width_;
  Board& board_;
  const Assignment& a_;
  const Problem& p_;
  std::vector<bool> open_;       // by GPU
  std::vector<uint32_t> nodes_;  // of the GPUs
  uint64_t& tries_;
  std::vector<uint32_t> order_;  // of the replicas
  std::vector<Layer> layers_;    // by depth
};

}  // namespace

bool Repack(const std::vector<uint32_t>& replicas,
            const std::vector<uint32_t>& gpus, size_t width, Board* board,
            uint64_t* tries) {
  return Beam(replicas, gpus, width, board, tries).Run();
}

}  // namespace fineserve::plan

#include "daemon/scheduling/global/policy/local_search.h"

#include <algorithm>
#include <numeric>

#include "daemon/scheduling/global/model/groups.h"

namespace fineserve::plan {
namespace {

class Search {
 public:
  Search(const SearchLimits& limits, Assignment* a)
      : limits_(limits), a_(a), p_(a->problem()), board_(a) {}

  void Run(const std::vector<uint32_t>& replicas) {
    tries_ = Small() ? UINT64_MAX
                     : limits_.tries_of_replica *
                           std::max(replicas.size(), kLeastReplicas);
    Steps(replicas);
  }

 private:
  static constexpr size_t kLeastReplicas = 12;

  void Steps(const std::vector<uint32_t>& replicas) {
    for (int pass = 0; pass < limits_.passes; ++pass) {
      RankTargets();
      bool better = false;
      for (const uint32_t r : replicas) {
        if (!a_->Hosted(r)) better |= PutBest(r, board_.worth());
      }
      for (const uint32_t r : replicas) {
        if (a_->Hosted(r)) better |= Move(r);
      }
      for (const uint32_t r : replicas) {
        if (a_->Hosted(r)) better |= Swap(r);
      }
      if (!better || tries_ == 0) return;
    }
  }

  // Ranks the GPUs with the most room first; equal ones by name.
  void RankTargets() {
    const size_t gpus = p_.gpus.size();
    std::vector<double> room;
    for (uint32_t g = 0; g < gpus; ++g) {
      room.push_back(a_->Room(g, Charge::kLeast));
    }
    ranked_.resize(gpus);
    std::iota(ranked_.begin(), ranked_.end(), 0u);
    std::stable_sort(ranked_.begin(), ranked_.end(),
                     [&](uint32_t x, uint32_t y) { return room[x] > room[y]; });
  }

  size_t Targets(size_t limit) const { return std::min(limit, ranked_.size()); }

  // Returns the groups worth trying for a replica without a place.
  std::vector<Group> GroupsFor(uint32_t r) const {
    std::vector<Group> groups;
    const auto keep = [&groups](const Group& g) { groups.push_back(g); };
    if (p_.replicas[r].tp == 1) {
      for (const uint32_t g : ranked_) {
        if (groups.size() >= Targets(limits_.targets)) break;
        if (a_->Takes(g, r, Charge::kLeast)) keep({g});
      }
      return groups;
    }
    std::vector<bool> seen(p_.node_begins.size());
    for (const uint32_t g : ranked_) {
      if (groups.size() >= Targets(limits_.targets)) break;
      if (seen[p_.node_of[g]]) continue;
      seen[p_.node_of[g]] = true;
      ForEachGroupOfNode(*a_, r, p_.node_of[g], Charge::kLeast, keep);
    }
    return groups;
  }

  // Puts the replica, which has no place, where the whole is worth most. If
  // nothing is better than `least`, returns false and leaves the replica out.
  bool PutBest(uint32_t r, const Worth& least) {
    Group best;
    Worth best_worth = least;
    for (const Group& group : GroupsFor(r)) {
      if (tries_ == 0) break;
      --tries_;
      const Worth worth = board_.WorthWith(r, group);
      if (!Better(worth, best_worth)) continue;
      best = group;
      best_worth = worth;
    }
    if (best.empty()) return false;
    board_.Put(r, best);
    return true;
  }

  bool Move(uint32_t r) {
    const Worth before = board_.worth();
    const Group from = a_->GroupOf(r);
    board_.Remove(r);
    // Another replica of the same model may make better use of the memory.
    const bool leaves = Better(board_.worth(), before);
    if (PutBest(r, leaves ? board_.worth() : before) || leaves) return true;
    board_.Put(r, from);
    return false;
  }

  // True if there are few enough replicas to look at every pair.
  bool Small() const { return p_.replicas.size() <= limits_.few_replicas; }

  bool Swap(uint32_t r) {
    const size_t limit = Small() ? limits_.targets : limits_.swap_targets;
    if (!Small() && board_.Missing(a_->GroupOf(r).front()) <= 0) return false;
    for (size_t i = 0; i < Targets(limit) && tries_ > 0; ++i) {
      const Assignment::Residents residents = a_->On(ranked_[i]);
      for (const uint32_t other : residents) {
        if (Exchange(r, other)) return true;
      }
    }
    return false;
  }

  bool Exchange(uint32_t r, uint32_t other) {
    const Group here = a_->GroupOf(r), there = a_->GroupOf(other);
    if (here == there || here.size() != there.size()) return false;
    const Worth before = board_.worth();
    tries_ -= std::min<uint64_t>(tries_, 1);
    board_.Remove(r);
    board_.Remove(other);
    if (a_->Takes(there, r, Charge::kLeast)) {
      board_.Put(r, there);
      if (a_->Takes(here, other, Charge::kLeast)) {
        board_.Put(other, here);
        if (Better(board_.worth(), before)) return true;
        board_.Remove(other);
      }
      board_.Remove(r);
    }
    board_.Put(r, here);
    board_.Put(other, there);
    return false;
  }

  const SearchLimits& limits_;
  Assignment* a_;
  const Problem& p_;
  Board board_;
  std::vector<uint32_t> ranked_;  // GPUs
  uint64_t tries_ = 0;            // that are left
};

std::vector<uint32_t> All(const Assignment& a) {
  std::vector<uint32_t> all(a.problem().replicas.size());
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

}  // namespace

void Improve(const SearchLimits& limits, Assignment* a) {
  Search(limits, a).Run(All(*a));
}

void ImproveAround(const std::vector<uint32_t>& replicas,
                   const SearchLimits& limits, Assignment* a) {
  std::vector<uint32_t> all = replicas;
  for (const uint32_t r : replicas) {
    for (const uint32_t g : a->GroupOf(r)) {
      all.insert(all.end(), a->On(g).begin(), a->On(g).end());
    }
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  Search(limits, a).Run(all);
}

}  // namespace fineserve::plan

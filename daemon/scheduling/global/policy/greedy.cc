#include "daemon/scheduling/global/policy/greedy.h"

#include <algorithm>
#include <limits>
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

namespace {

// The best group that a replica has been offered so far and, for the journal,
// all groups offered.
class Choice {
 public:
  Choice(const Assignment& a, uint32_t replica, Charge charge, Journal* journal)
      : journal_(journal), decision_{replica, {}, {}} {
    if (journal != nullptr) NoteRejections(a, replica, charge, &decision_);
  }

  void Offer(const Group& group, const Score& s) {
    if (journal_ != nullptr) candidates_.push_back({group, s.score});
    const bool better =
        s.score > best_score_.score ||
        (s.score == best_score_.score && s.tie > best_score_.tie);
    if (!best_.empty() && !better) return;
    best_ = group;
    best_score_ = s;
  }

  // Puts the replica there; false if nothing was offered.
  bool Take(Assignment* a) {
    if (!best_.empty()) a->Put(decision_.replica, best_);
    if (journal_ != nullptr) {
      NoteCandidates(std::move(candidates_), journal_->least_is_best,
                     &decision_);
      journal_->decisions.push_back(std::move(decision_));
    }
    return !best_.empty();
  }

 private:
  Journal* journal_;
  Decision decision_;
  std::vector<Candidate> candidates_;
  Group best_;
  Score best_score_;
};

// True if pins, siblings, pools and the host let the replica run on this group,
// which has room.
bool May(const Assignment& a, uint32_t replica, const GroupState& group,
         Charge charge) {
  const Replica& r = a.problem().replicas[replica];
  const bool free = r.allowed.empty() && a.HostedReplicas(r.model) == 0;
  if (free && !group.HasPool()) {
    const uint32_t node = a.problem().node_of[group.gpus.front()];
    return a.HostMissing(node, replica) <= 0;
  }
  return a.Takes(group.gpus, replica, charge);
}

}  // namespace

size_t Crowd(const Assignment& a, const Group& group) {
  size_t most = 0;
  for (const uint32_t g : group) most = std::max(most, a.On(g).size());
  return most;
}

double LeastRoom(const Assignment& a, const Group& group) {
  double room = std::numeric_limits<double>::infinity();
  for (const uint32_t g : group) {
    room = std::min(room, a.Room(g, Charge::kLeast));
  }
  return room;
}

void PlaceInOrder(const std::vector<uint32_t>& order, Charge charge,
                  Scorer scorer, Assignment* a, Journal* journal) {
  for (const uint32_t r : order) {
    Choice choice(*a, r, charge, journal);
    ForEachGroup(*a, r, charge, [&](const Group& group) {
      const absl::optional<Score> s = scorer(*a, r, group);
      if (s.has_value()) choice.Offer(group, *s);
    });
    choice.Take(a);
  }
}

void PlaceByState(const std::vector<uint32_t>& order, Charge charge,
                  Efficiency efficiency, StateScorer scorer, Assignment* a,
                  Journal* journal) {
  const Problem& p = a->problem();
  GroupTable table(*a, charge, efficiency);
  for (const uint32_t r : order) {
    const Replica& comes = p.replicas[r];
    const double needed = Charged(comes, charge);
    Choice choice(*a, r, charge, journal);
    for (uint32_t n = 0; n + 1 < p.node_begins.size(); ++n) {
      for (const GroupState& group : table.Of(n, comes.tp)) {
        if (group.room < needed || !May(*a, r, group, charge)) continue;
        choice.Offer(group.gpus, scorer(comes, group));
      }
    }
    if (choice.Take(a)) table.Changed(p.node_of[a->GroupOf(r).front()]);
  }
}

}  // namespace fineserve::plan

#include "daemon/scheduling/global/score/contested_score.h"

#include <algorithm>
#include <limits>

#include "daemon/scheduling/global/score/water_fill.h"

namespace fineserve::plan {
namespace {

// Returns the group's residents, each once, and the replica.
Assignment::Residents Together(const Assignment& a, uint32_t replica,
                               const Group& group) {
  Assignment::Residents all = {replica};
  for (const uint32_t g : group) {
    all.insert(all.end(), a.On(g).begin(), a.On(g).end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

double ContestedBytes(const Assignment& a, uint32_t replica,
                      const Group& group) {
  const Replica& comes = a.problem().replicas[replica];
  double least = std::numeric_limits<double>::infinity();
  for (const uint32_t g : group) {
    least = std::min({least, a.Room(g, Charge::kFootprint) - comes.Footprint(),
                      a.PoolRoom(g, Charge::kFootprint) - comes.base_kv_bytes});
  }
  return least;
}

double MeanScore(const Replica& comes, const GroupState& group,
                 Efficiency efficiency) {
  return (group.efficiency + EfficiencyOf(comes, efficiency)) /
         (group.residents + 1) * group.Contested(comes);
}

double ExactScore(const Assignment& a, uint32_t replica, const Group& group) {
  const Problem& p = a.problem();
  const Assignment::Residents all = Together(a, replica, group);
  const double slowdown = p.Slowdown(static_cast<double>(all.size() - 1));
  absl::InlinedVector<Bucket, 12> buckets;
  double base = 0;
  for (const uint32_t r : all) {
    const Replica& resident = p.replicas[r];
    const TokenCurve& curve = resident.curve;
    buckets.push_back(
        BucketOf(curve, slowdown, resident.base_kv_bytes,
                 curve.BatchFor(p.burst * curve.demand, slowdown)));
    base += resident.base_kv_bytes;
  }
  const double level =
      WaterLevel(buckets, base + ContestedBytes(a, replica, group));
  double score = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const TokenCurve& curve = p.replicas[all[i]].curve;
    const auto tokens = [&](double bytes) {
      return curve.Speed(
          std::min(bytes / curve.sequence_bytes, curve.max_batch), slowdown);
    };
    score += tokens(buckets[i].At(level)) - tokens(buckets[i].least);
  }
  return score;
}

}  // namespace fineserve::plan

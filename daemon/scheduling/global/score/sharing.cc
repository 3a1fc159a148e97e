#include "daemon/scheduling/global/score/sharing.h"

#include <algorithm>
#include <limits>

namespace fineserve::plan {
namespace {

double KvOn(const Assignment& a, uint32_t gpu) {
  double fixed = 0;
  for (const uint32_t r : a.On(gpu)) {
    fixed += a.problem().replicas[r].fixed_bytes;
  }
  return a.problem().gpus[gpu].KvBytes(fixed);
}

// Returns the replica's fixed part of one GPU's KV.
double PartOn(const Assignment& a, Sharing sharing, uint32_t replica,
              uint32_t gpu) {
  const Problem& p = a.problem();
  const Replica& self = p.replicas[replica];
  if (sharing == Sharing::kTime) {
    return p.gpus[gpu].KvBytes(self.fixed_bytes);
  }
  if (sharing == Sharing::kFootprint) {
    // Without a pool, weights are part of the memory that is divided.
    const bool pool = p.gpus[gpu].pool_bytes > 0;
    const auto part = [pool](const Replica& r) {
      return pool ? r.base_kv_bytes : r.Footprint();
    };
    double all = 0;
    for (const uint32_t r : a.On(gpu)) all += part(p.replicas[r]);
    return p.gpus[gpu].KvBytes(0) * part(self) / all -
           (pool ? 0 : self.fixed_bytes);
  }
  double beyond = KvOn(a, gpu);
  for (const uint32_t r : a.On(gpu)) beyond -= p.replicas[r].floor_bytes;
  return self.floor_bytes + beyond / static_cast<double>(a.On(gpu).size());
}

// Returns the tokens/s with this KV, at most `demand`.
double TokensWith(const TokenCurve& c, double kv_bytes, double demand,
                  double slowdown) {
  const double batch =
      std::min(kv_bytes / c.sequence_bytes, c.BatchFor(demand, slowdown));
  return c.Speed(batch, slowdown);
}

std::vector<Share> Parts(const Assignment& a, Sharing sharing, double load) {
  const Problem& p = a.problem();
  std::vector<Share> shares;
  for (uint32_t r = 0; r < p.replicas.size(); ++r) {
    if (!a.Hosted(r)) continue;
    double kv = std::numeric_limits<double>::infinity();
    for (const uint32_t g : a.GroupOf(r)) {
      kv = std::min(kv, PartOn(a, sharing, r, g));
    }
    const double slowdown =
        sharing == Sharing::kTime ? 1 : SlowdownOf(a, r, load);
    shares.push_back(
        {r, kv,
         TokensWith(p.replicas[r].curve, kv, load * a.DemandOf(r), slowdown)});
  }
  return shares;
}

// Returns the part of its time for which the GPU would have to work to serve
// all its residents; above 1 if it cannot keep up.
double BusyOn(const Assignment& a, uint32_t gpu, double load) {
  double busy = 0;
  for (const uint32_t r : a.On(gpu)) {
    const TokenCurve& c = a.problem().replicas[r].curve;
    const double batch = std::min(
        c.max_batch, PartOn(a, Sharing::kTime, r, gpu) / c.sequence_bytes);
    busy += load * a.DemandOf(r) / c.Speed(batch, 1);
  }
  return busy;
}

std::vector<Share> Turns(const Assignment& a, double load) {
  std::vector<Share> shares = Parts(a, Sharing::kTime, load);
  for (Share& s : shares) {
    double busy = 1;
    for (const uint32_t g : a.GroupOf(s.replica)) {
      busy = std::max(busy, BusyOn(a, g, load));
    }
    s.tokens = std::min(s.tokens, load * a.DemandOf(s.replica) / busy);
  }
  return shares;
}

std::vector<Share> FromPools(const Assignment& a, double load) {
  std::vector<Share> shares;
  std::vector<bool> seen(a.problem().gpus.size());
  for (uint32_t g = 0; g < seen.size(); ++g) {
    if (seen[g]) continue;
    const Component component = ComponentOf(a, g);
    for (const uint32_t member : component) seen[member] = true;
    const std::vector<Share> some = ShareOut(a, component, load);
    shares.insert(shares.end(), some.begin(), some.end());
  }
  std::sort(shares.begin(), shares.end(), [](const Share& x, const Share& y) {
    return x.replica < y.replica;
  });
  return shares;
}

double Tokens(const std::vector<Share>& shares) {
  double tokens = 0;
  for (const Share& s : shares) tokens += s.tokens;
  return tokens;
}

}  // namespace

std::vector<Share> SharesOf(const Assignment& a, Sharing sharing, double load) {
  if (sharing == Sharing::kPool) return FromPools(a, load);
  if (sharing == Sharing::kTime) return Turns(a, load);
  return Parts(a, sharing, load);
}

Worth WorthOf(const Assignment& a, Sharing sharing) {
  double crowding = 0;
  for (uint32_t g = 0; g < a.problem().gpus.size(); ++g) {
    crowding += CrowdingOn(a, g);
  }
  return {a.hosted_models(), Tokens(SharesOf(a, sharing, 1)),
          Tokens(SharesOf(a, sharing, a.problem().burst)), crowding};
}

}  // namespace fineserve::plan

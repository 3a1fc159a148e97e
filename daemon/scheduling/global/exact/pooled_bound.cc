#include "daemon/scheduling/global/exact/pooled_bound.h"

#include <algorithm>
#include <cmath>

#include "daemon/scheduling/global/model/groups.h"

namespace fineserve::plan {
namespace {

constexpr int kSteps = 60;

// The gain and the memory of one replica, or of all replicas of a model, at a
// price.
struct Response {
  double surplus = 0;  // tokens/s, less the price of its bytes
  double bytes = 0;    // of all its GPUs
};

// A model that is hosted with the number of replicas that pays best.
struct Bidder {
  double fixed_bytes;  // of all GPUs of a replica
  double sequence_bytes;
  double least_batch;
  double most_kv_batch;
  const TokenCurve* curve;
  Hosting hosting;
  double demand;  // of all replicas together; 0: each has its own

  double DemandOf(uint32_t replicas) const {
    return demand > 0 ? demand / replicas : curve->demand;
  }

  // Returns the response with the best batch at the price: X'(b) = price ·
  // bytes of a sequence.
  Response OfEach(double price, uint32_t replicas) const {
    const TokenCurve& c = *curve;
    const double most_useful = c.BatchFor(DemandOf(replicas), 1);
    const double most =
        std::max(least_batch, std::min(most_useful, most_kv_batch));
    double batch = most;
    if (price > 0) {
      batch = (std::sqrt(c.c0 / (price * sequence_bytes)) - c.c0) / c.cd;
      batch = std::clamp(batch, least_batch, most);
    }
    Response r;
    r.bytes = fixed_bytes + sequence_bytes * batch;
    r.surplus = c.Speed(std::min(batch, most_useful), 1) - price * r.bytes;
    return r;
  }

  Response At(double price) const {
    Response best;
    bool found = hosting.least == 0;
    for (uint32_t n = std::max(1u, hosting.least); n <= hosting.most; ++n) {
      Response r = OfEach(price, n);
      r.surplus *= n;
      r.bytes *= n;
      if (found && r.surplus <= best.surplus) continue;
      best = r;
      found = true;
    }
    return best;
  }
};

std::vector<Bidder> Bidders(const Problem& p,
                            const std::vector<Hosting>& hostings) {
  std::vector<Bidder> bidders;
  for (const Hosting& hosting : hostings) {
    const uint32_t index = p.first_replica[hosting.model];
    const Replica& r = p.replicas[index];
    const double most_kv = MostKv(p, index);
    if (most_kv < r.floor_bytes) continue;  // it has no place
    const double demand =
        p.ChoosesNumber(hosting.model)
            ? p.sizings[hosting.model].replicas * r.curve.demand
            : 0;
    bidders.push_back({r.tp * r.fixed_bytes, r.tp * r.curve.sequence_bytes,
                       r.floor_bytes / r.curve.sequence_bytes,
                       most_kv / r.curve.sequence_bytes, &r.curve, hosting,
                       demand});
  }
  return bidders;
}

Response All(const std::vector<Bidder>& bidders, double price) {
  Response all;
  for (const Bidder& b : bidders) {
    const Response one = b.At(price);
    all.surplus += one.surplus;
    all.bytes += one.bytes;
  }
  return all;
}

// All bidders on one memory.
double BoundOf(const std::vector<Bidder>& bidders, double memory) {
  const Response free = All(bidders, 0);
  double bound = free.surplus;
  if (free.bytes <= memory) return bound;
  double low = 0, high = 1 / memory;
  while (All(bidders, high).bytes > memory && high < 1e6) high *= 16;
  for (int i = 0; i < kSteps; ++i) {
    const double price = (low + high) / 2;
    const Response all = All(bidders, price);
    bound = std::min(bound, all.surplus + price * memory);
    (all.bytes > memory ? low : high) = price;
  }
  return std::max(bound, 0.0);
}

}  // namespace

double MostKv(const Problem& p, uint32_t replica) {
  const Replica& r = p.replicas[replica];
  double most = -1;
  std::vector<double> open;
  ForEachChoice(p, r, [&](absl::Span<const uint32_t> gpus) {
    open.clear();
    for (const uint32_t g : gpus) {
      const bool fits =
          r.fixed_bytes + p.gpus[g].pool_bytes <= p.gpus[g].Capacity();
      open.push_back(fits ? p.gpus[g].KvBytes(r.fixed_bytes) : -1);
    }
    if (open.size() < r.tp) return;
    std::nth_element(open.begin(), open.begin() + (r.tp - 1), open.end(),
                     std::greater<>());
    most = std::max(most, open[r.tp - 1]);
  });
  return most;
}

double PooledBound(const Problem& p, const std::vector<Hosting>& hostings) {
  std::vector<Bidder> bidders = Bidders(p, hostings);
  double memory = 0, kv = 0;
  bool pools = false;
  for (const Gpu& g : p.gpus) {
    memory += g.Capacity();
    kv += g.KvBytes(0);
    pools |= g.pool_bytes > 0;
  }
  const double bound = BoundOf(bidders, memory);
  if (!pools) return bound;
  // Even if weights took nothing, the KV could have only the pools and the GPUs
  // without one.
  for (Bidder& b : bidders) b.fixed_bytes = 0;
  return std::min(bound, BoundOf(bidders, kv));
}

}  // namespace fineserve::plan

#include "daemon/plan/score/goodput.h"

#include <algorithm>
#include <cmath>

#include "daemon/plan/score/water_fill.h"

namespace fineserve::plan {
namespace {

constexpr double kRounding = 1e-9;

// Whether x exceeds y by more than rounding.
bool Exceeds(double x, double y) { return x - y > kRounding * std::abs(y); }

double SlowdownOf(const Assignment& a, uint32_t replica) {
  size_t most = 0;
  for (const uint32_t g : a.GroupOf(replica)) {
    most = std::max(most, a.On(g).size());
  }
  return a.problem().Slowdown(most);
}

// One resident of a component while memory is shared out.
struct Party {
  uint32_t replica;
  Bucket bucket;
  double slowdown;
};
using Parties = absl::InlinedVector<Party, 16>;  // by replica

Parties PartiesOf(const Assignment& a, const Component& component,
                  double load) {
  const Problem& p = a.problem();
  Parties parties;
  for (const uint32_t g : component) {
    for (const uint32_t r : a.On(g)) {
      if (a.GroupOf(r).front() != g) continue;
      const Replica& replica = p.replicas[r];
      const double slowdown = SlowdownOf(a, r);
      const double batch =
          replica.curve.BatchFor(load * replica.curve.demand, slowdown);
      parties.push_back(
          {r, BucketOf(replica.curve, slowdown, replica.floor_bytes, batch),
           slowdown});
    }
  }
  std::sort(parties.begin(), parties.end(), [](const Party& x, const Party& y) {
    return x.replica < y.replica;
  });
  return parties;
}

double Pool(const Assignment& a, uint32_t gpu) {
  double fixed = 0;
  for (const uint32_t r : a.On(gpu)) {
    fixed += a.problem().replicas[r].fixed_bytes;
  }
  return a.problem().gpus[gpu].KvBytes(fixed);
}

Party& Find(Parties& parties, uint32_t replica) {
  return *std::lower_bound(
      parties.begin(), parties.end(), replica,
      [](const Party& x, uint32_t wanted) { return x.replica < wanted; });
}

// Shares out one GPU; each resident's `most` sinks to what it gets there.
// Returns whether any of those that span GPUs got less than before.
bool FillGpu(const Assignment& a, uint32_t gpu, Parties& parties,
             absl::InlinedVector<double, 16>* given) {
  absl::InlinedVector<Bucket, 12> buckets;
  for (const uint32_t r : a.On(gpu)) {
    buckets.push_back(Find(parties, r).bucket);
  }
  const double level = WaterLevel(buckets, Pool(a, gpu));
  bool less = false;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const uint32_t r = a.On(gpu)[i];
    Party& party = Find(parties, r);
    const double bytes = buckets[i].At(level);
    (*given)[static_cast<size_t>(&party - parties.data())] = bytes;
    if (a.GroupOf(r).size() > 1 && Exceeds(party.bucket.most, bytes)) {
      party.bucket.most = std::max(bytes, party.bucket.least);
      less = true;
    }
  }
  return less;
}

// Each round takes from an engine that spans GPUs what its meanest one does not
// give; it ends when none lost any more.
void FillAll(const Assignment& a, const Component& component, Parties& parties,
             absl::InlinedVector<double, 16>* given) {
  given->assign(parties.size(), 0);
  if (component.size() == 1) {
    FillGpu(a, component[0], parties, given);
    return;
  }
  for (bool less = true; less;) {
    less = false;
    for (const uint32_t g : component) less |= FillGpu(a, g, parties, given);
  }
}

}  // namespace

bool Better(const Worth& a, const Worth& b) {
  if (a.hosted != b.hosted) return a.hosted > b.hosted;
  if (Exceeds(a.goodput, b.goodput)) return true;
  if (Exceeds(b.goodput, a.goodput)) return false;
  if (Exceeds(a.headroom, b.headroom)) return true;
  if (Exceeds(b.headroom, a.headroom)) return false;
  return Exceeds(b.crowding, a.crowding);
}

Component ComponentOf(const Assignment& a, uint32_t gpu) {
  Component found = {gpu};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const uint32_t r : a.On(found[i])) {
      for (const uint32_t g : a.GroupOf(r)) {
        if (std::find(found.begin(), found.end(), g) == found.end()) {
          found.push_back(g);
        }
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

double CrowdingOn(const Assignment& a, uint32_t gpu) {
  double work = 0;
  for (const uint32_t r : a.On(gpu)) {
    const TokenCurve& c = a.problem().replicas[r].curve;
    work += c.demand / c.Speed(c.max_batch, 1);
  }
  return work * work;
}

std::vector<Share> ShareOut(const Assignment& a, const Component& component,
                            double load) {
  Parties parties = PartiesOf(a, component, load);
  absl::InlinedVector<double, 16> given;
  FillAll(a, component, parties, &given);
  std::vector<Share> shares;
  for (size_t i = 0; i < parties.size(); ++i) {
    const TokenCurve& curve = a.problem().replicas[parties[i].replica].curve;
    // A floor may hold more sequences than the demand or the engine needs.
    const double batch =
        std::min(given[i] / curve.sequence_bytes,
                 curve.BatchFor(load * curve.demand, parties[i].slowdown));
    shares.push_back({parties[i].replica, given[i],
                      curve.Speed(batch, parties[i].slowdown)});
  }
  return shares;
}

Board::Board(Assignment* a)
    : a_(a),
      goodput_(a->problem().gpus.size()),
      headroom_(goodput_.size()),
      demand_(goodput_.size()),
      crowding_(goodput_.size()) {
  std::vector<bool> seen(goodput_.size());
  for (uint32_t g = 0; g < goodput_.size(); ++g) {
    if (seen[g]) continue;
    const Component component = ComponentOf(*a_, g);
    for (const uint32_t member : component) seen[member] = true;
    Measure(component);
    Count(component, 1);
  }
  worth_.hosted = a_->hosted_models();
}

void Board::Count(const Component& component, double sign) {
  for (const uint32_t g : component) {
    worth_.goodput += sign * goodput_[g];
    worth_.headroom += sign * headroom_[g];
    worth_.crowding += sign * crowding_[g];
  }
}

void Board::Measure(const Component& component) {
  for (const uint32_t g : component) {
    goodput_[g] = headroom_[g] = demand_[g] = 0;
    crowding_[g] = CrowdingOn(*a_, g);
  }
  const Problem& p = a_->problem();
  for (const Share& s : ShareOut(*a_, component, 1)) {
    const uint32_t lead = a_->GroupOf(s.replica).front();
    goodput_[lead] += s.tokens;
    demand_[lead] += p.replicas[s.replica].curve.demand;
  }
  for (const Share& s : ShareOut(*a_, component, p.burst)) {
    headroom_[a_->GroupOf(s.replica).front()] += s.tokens;
  }
}

void Board::Settle(const Group& group) {
  absl::InlinedVector<uint32_t, 8> done;
  for (const uint32_t g : group) {
    if (std::find(done.begin(), done.end(), g) != done.end()) continue;
    const Component component = ComponentOf(*a_, g);
    Count(component, -1);
    Measure(component);
    Count(component, 1);
    done.insert(done.end(), component.begin(), component.end());
  }
  worth_.hosted = a_->hosted_models();
}

void Board::Put(uint32_t replica, const Group& group) {
  a_->Put(replica, group);
  Settle(group);
}

void Board::Remove(uint32_t replica) {
  const Group group = a_->GroupOf(replica);
  a_->Remove(replica);
  Settle(group);
}

}  // namespace fineserve::plan

#include "daemon/scheduling/global/score/goodput.h"

#include <algorithm>
#include <cmath>

#include "daemon/scheduling/global/score/water_fill.h"

namespace fineserve::plan {
namespace {

constexpr double kRounding = 1e-9;

// True if x exceeds y by more than rounding.
bool Exceeds(double x, double y) { return x - y > kRounding * std::abs(y); }

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
      const double slowdown = SlowdownOf(a, r, load);
      const double batch =
          replica.curve.BatchFor(load * a.DemandOf(r), slowdown);
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

// One GPU of a component while memory is shared out.
struct Shared {
  uint32_t gpu;
  double kv_bytes;
  absl::InlinedVector<uint32_t, 12> residents;  // as parties
  bool open = true;  // a resident has less since the GPU was last filled
};
using AllShared = absl::InlinedVector<Shared, 8>;

Shared SharedOf(const Assignment& a, uint32_t gpu, const Parties& parties) {
  Shared shared{gpu, 0, {}};
  double fixed = 0;
  auto party = parties.begin();
  for (const uint32_t r : a.On(gpu)) {
    fixed += a.problem().replicas[r].fixed_bytes;
    while (party->replica != r) ++party;  // both ascend
    shared.residents.push_back(static_cast<uint32_t>(party - parties.begin()));
  }
  shared.kv_bytes = a.problem().gpus[gpu].KvBytes(fixed);
  return shared;
}

// Shares out one GPU. Each resident's `most` falls to what it gets there. If
// residents that span several GPUs got less, their other GPUs are open again.
void FillGpu(const Assignment& a, Shared& shared, Parties& parties,
             absl::InlinedVector<double, 16>* given, AllShared* all) {
  shared.open = false;
  absl::InlinedVector<Bucket, 12> buckets;
  for (const uint32_t i : shared.residents) {
    buckets.push_back(parties[i].bucket);
  }
  const double level = WaterLevel(buckets, shared.kv_bytes);
  for (size_t n = 0; n < buckets.size(); ++n) {
    Party& party = parties[shared.residents[n]];
    const double bytes = buckets[n].At(level);
    (*given)[shared.residents[n]] = bytes;
    const Group& group = a.GroupOf(party.replica);
    if (group.size() == 1 || !Exceeds(party.bucket.most, bytes)) continue;
    party.bucket.most = std::max(bytes, party.bucket.least);
    for (Shared& other : *all) {
      other.open |=
          other.gpu != shared.gpu &&
          std::find(group.begin(), group.end(), other.gpu) != group.end();
    }
  }
}

// An engine that spans GPUs gets what the GPU that gives it the least gives:
// GPUs are filled again until none takes anything further from an engine.
void FillAll(const Assignment& a, const Component& component, Parties& parties,
             absl::InlinedVector<double, 16>* given) {
  given->assign(parties.size(), 0);
  AllShared all;
  for (const uint32_t g : component) all.push_back(SharedOf(a, g, parties));
  for (bool again = true; again;) {
    again = false;
    for (Shared& shared : all) {
      if (!shared.open) continue;
      again = true;
      FillGpu(a, shared, parties, given, &all);
    }
  }
}

}  // namespace

double SlowdownOf(const Assignment& a, uint32_t replica, double load) {
  const Problem& p = a.problem();
  if (p.co_tenant_slowdown == 0) return 1;
  return p.Slowdown(a.BusyNeighbours(replica, load));
}

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
  double work = 0, fixed = 0, kv = 0;
  for (const uint32_t r : a.On(gpu)) {
    const Replica& replica = a.problem().replicas[r];
    const TokenCurve& c = replica.curve;
    const double demand = a.DemandOf(r);
    work += demand / c.Speed(c.max_batch, 1);
    fixed += replica.fixed_bytes;
    kv += c.BatchFor(demand, 1) * c.sequence_bytes;
  }
  const double room = a.problem().gpus[gpu].KvBytes(fixed);
  const double pressure = kv > 0 ? kv / std::max(room, 1.0) : 0;
  return work * work + pressure * pressure;
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
                 curve.BatchFor(load * a.DemandOf(parties[i].replica),
                                parties[i].slowdown));
    shares.push_back({parties[i].replica, given[i],
                      curve.Speed(batch, parties[i].slowdown)});
  }
  return shares;
}

Board::Board(Assignment* a) : a_(a), of_gpu_(a->problem().gpus.size()) {
  std::vector<bool> seen(of_gpu_.size());
  for (uint32_t g = 0; g < of_gpu_.size(); ++g) {
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
    worth_.goodput += sign * of_gpu_[g].goodput;
    worth_.headroom += sign * of_gpu_[g].headroom;
    worth_.crowding += sign * of_gpu_[g].crowding;
  }
}

void Board::Measure(const Component& component) {
  for (const uint32_t g : component) {
    of_gpu_[g] = {0, 0, 0, CrowdingOn(*a_, g)};
  }
  const Problem& p = a_->problem();
  for (const Share& s : ShareOut(*a_, component, 1)) {
    OfGpu& lead = of_gpu_[a_->GroupOf(s.replica).front()];
    lead.goodput += s.tokens;
    lead.demand += a_->DemandOf(s.replica);
  }
  for (const Share& s : ShareOut(*a_, component, p.burst)) {
    of_gpu_[a_->GroupOf(s.replica).front()].headroom += s.tokens;
  }
}

// Returns the GPUs of the group, and of the replicas whose part of the rate
// changes when this replica comes or goes.
Group Board::Touched(uint32_t replica, const Group& group) const {
  Group gpus = group;
  const Problem& p = a_->problem();
  const uint32_t model = p.replicas[replica].model;
  if (!p.ChoosesNumber(model)) return gpus;
  for (uint32_t r = p.first_replica[model]; r < p.first_replica[model + 1];
       ++r) {
    if (r == replica) continue;
    const Group& lies = a_->GroupOf(r);
    gpus.insert(gpus.end(), lies.begin(), lies.end());
  }
  return gpus;
}

// Visits each component of these GPUs once.
void Board::Settle(const Group& gpus, std::vector<Before>* before) {
  absl::InlinedVector<uint32_t, 8> done;
  for (const uint32_t g : gpus) {
    if (std::find(done.begin(), done.end(), g) != done.end()) continue;
    const Component component = ComponentOf(*a_, g);
    if (before != nullptr) {
      for (const uint32_t c : component) before->push_back({c, of_gpu_[c]});
    }
    Count(component, -1);
    Measure(component);
    Count(component, 1);
    done.insert(done.end(), component.begin(), component.end());
  }
  worth_.hosted = a_->hosted_models();
}

void Board::Put(uint32_t replica, const Group& group) {
  a_->Put(replica, group);
  Settle(Touched(replica, group), nullptr);
}

Worth Board::WorthWith(uint32_t replica, const Group& group) {
  const Worth without = worth_;
  before_.clear();
  a_->Put(replica, group);
  Settle(Touched(replica, group), &before_);
  const Worth with = worth_;
  a_->Remove(replica);
  for (const Before& b : before_) of_gpu_[b.gpu] = b.was;
  worth_ = without;
  return with;
}

void Board::Remove(uint32_t replica) {
  const Group touched = Touched(replica, a_->GroupOf(replica));
  a_->Remove(replica);
  Settle(touched, nullptr);
}

}  // namespace fineserve::plan

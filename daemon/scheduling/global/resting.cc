#include "daemon/scheduling/global/resting.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/optional.h"

namespace fineserve::plan {
namespace {

// Places of a model on one node that are off and do not rest yet.
struct Waiting {
  uint32_t model = 0;
  absl::InlinedVector<uint32_t, 8> gpus;
};

// All replicas of a model are alike.
const Replica& ReplicaOf(const Problem& p, uint32_t model) {
  return p.replicas[p.first_replica[model]];
}

double StoreBytes(const Replica& r, bool is_held) {
  const double all = r.fixed_bytes - r.context_bytes;
  return is_held ? all - r.weight_bytes : all;
}

// Returns, for each GPU, the bytes that no resident and no pool needs in a
// burst.
std::vector<double> LeftOnGpus(const Assignment& a, const Plan& plan) {
  const Problem& p = a.problem();
  std::vector<double> left;
  for (uint32_t g = 0; g < p.gpus.size(); ++g) {
    left.push_back(p.gpus[g].Capacity() - p.gpus[g].pool_bytes);
    for (const uint32_t r : a.On(g)) left[g] -= p.replicas[r].fixed_bytes;
  }
  for (const Share& s : SharesOf(a, plan.sharing, p.burst)) {
    const double kv =
        std::max(s.kv_bytes, plan.replicas[s.replica].floor_bytes);
    for (const uint32_t g : a.GroupOf(s.replica)) {
      if (p.gpus[g].pool_bytes == 0) left[g] -= kv;
    }
  }
  return left;
}

// Returns the models whose places may rest, in the order of a round.
std::vector<uint32_t> RoundOf(const Problem& p) {
  std::vector<std::pair<double, uint32_t>> order;
  for (uint32_t m = 0; m < p.models.size(); ++m) {
    if (!p.models[m].may_rest) continue;
    const Replica& r = ReplicaOf(p, m);
    const double bytes = r.process_bytes + StoreBytes(r, false);
    order.push_back({-p.models[m].rate / bytes, m});
  }
  std::sort(order.begin(), order.end());
  std::vector<uint32_t> models;
  for (const auto& [worth, model] : order) models.push_back(model);
  return models;
}

// True if the snapshot lets the place rest, and says that it already rests or,
// if `rests` is false, that it does not.
bool MayRest(const Problem& p, uint32_t model, uint32_t gpu, bool rests) {
  if (!p.off) return !rests;
  const std::vector<OffOn>& off = (*p.off)[model];
  return std::any_of(off.begin(), off.end(), [&](const OffOn& place) {
    return place.gpu == gpu && place.rests == rests;
  });
}

bool IsOff(const Assignment& a, uint32_t model, uint32_t gpu) {
  const Problem& p = a.problem();
  const bool on =
      std::any_of(a.On(gpu).begin(), a.On(gpu).end(),
                  [&](uint32_t r) { return p.replicas[r].model == model; });
  return !on && p.MayUse(ReplicaOf(p, model), gpu);
}

Waiting PlacesOff(const Assignment& a, uint32_t model, uint32_t node,
                  bool rests) {
  const Problem& p = a.problem();
  Waiting waiting{model, {}};
  for (uint32_t g = p.node_begins[node]; g < p.node_begins[node + 1]; ++g) {
    if (MayRest(p, model, g, rests) && IsOff(a, model, g)) {
      waiting.gpus.push_back(g);
    }
  }
  return waiting;
}

// Fills one node. Confined to a thread.
class NodeRest {
 public:
  NodeRest(const Assignment& a, uint32_t node, std::vector<double>* left,
           Plan* plan)
      : p_(a.problem()), a_(a), node_(node), left_(*left), plan_(*plan) {
    use_.node = p_.gpus[p_.node_begins[node]].node;
    use_.host_bytes = p_.host_bytes[node];
    use_.process_bytes = a.ProcessBytes(node);
  }

  void Fill(const std::vector<uint32_t>& round) {
    for (const bool rests : {true, false}) {
      std::vector<Waiting> now;
      for (const uint32_t model : round) {
        now.push_back(PlacesOff(a_, model, node_, rests));
      }
      FillWith(std::move(now));
    }
    if (use_.host_bytes != 0) plan_.hosts.push_back(use_);
  }

 private:
  void FillWith(std::vector<Waiting> now) {
    if (use_.host_bytes == 0) full_ = {NotResting::Why::kHostUnknown};
    while (!now.empty() && !full_) now = Round(std::move(now));
    for (const Waiting& w : now) Note(w, *full_);
  }

  // Runs one round; returns the places that wait for the next round.
  std::vector<Waiting> Round(std::vector<Waiting> now) {
    std::vector<Waiting> next;
    for (size_t i = 0; i < now.size(); ++i) {
      Waiting& w = now[i];
      if (w.gpus.empty() || !GpuTakes(w)) continue;
      const double missing = HostMissing(w);
      if (missing > 0) {
        full_ = {NotResting::Why::kHostMemory, p_.models[w.model].name,
                 missing};
        std::move(now.begin() + static_cast<long>(i), now.end(),
                  std::back_inserter(next));
        return next;
      }
      Rest(&w);
      next.push_back(std::move(w));
    }
    return next;
  }

  uint32_t* Roomiest(Waiting& w) const {
    return std::max_element(
        w.gpus.begin(), w.gpus.end(),
        [this](uint32_t g, uint32_t h) { return left_[g] < left_[h]; });
  }

  // True if a GPU has room for a context; notes the shortage if none has.
  bool GpuTakes(Waiting& w) {
    const uint32_t gpu = *Roomiest(w);
    const double context = ReplicaOf(p_, w.model).context_bytes;
    const double missing = context - left_[gpu];
    if (context == 0 || missing <= 0) return true;
    Note(w, {NotResting::Why::kGpuMemory, p_.gpus[gpu].name, missing});
    return false;
  }

  double HostMissing(const Waiting& w) const {
    const Replica& r = ReplicaOf(p_, w.model);
    return use_.process_bytes + r.process_bytes + use_.store_bytes +
           StoreBytes(r, held_.count(w.model) > 0) - use_.host_bytes;
  }

  void Rest(Waiting* w) {
    const Replica& r = ReplicaOf(p_, w->model);
    uint32_t* const gpu = Roomiest(*w);
    const double store = StoreBytes(r, !held_.insert(w->model).second);
    plan_.resting.push_back({p_.models[w->model].name, p_.gpus[*gpu].name,
                             use_.node, r.context_bytes, r.process_bytes,
                             store});
    left_[*gpu] -= r.context_bytes;
    use_.process_bytes += r.process_bytes;
    use_.store_bytes += store;
    w->gpus.erase(gpu);
  }

  void Note(const Waiting& w, NotResting why) {
    if (w.gpus.empty()) return;
    why.model = p_.models[w.model].name;
    why.node = use_.node;
    why.places = static_cast<uint32_t>(w.gpus.size());
    plan_.not_resting.push_back(std::move(why));
  }

  const Problem& p_;
  const Assignment& a_;
  uint32_t node_;
  std::vector<double>& left_;  // by GPU
  Plan& plan_;
  HostUse use_;
  std::set<uint32_t> held_;          // models whose weights the store holds
  absl::optional<NotResting> full_;  // why no further place rests
};

}  // namespace

void SetResting(const Assignment& a, Plan* plan) {
  const Problem& p = a.problem();
  const std::vector<double>& hosts = p.host_bytes;
  if (std::all_of(hosts.begin(), hosts.end(),
                  [](double bytes) { return bytes == 0; })) {
    return;
  }
  for (const ModelDemand& m : p.models) {
    if (m.may_rest) continue;
    plan->not_resting.push_back({NotResting::Why::kMayNot, "", 0, m.name});
  }
  std::vector<double> left = LeftOnGpus(a, *plan);
  const std::vector<uint32_t> round = RoundOf(p);
  for (uint32_t n = 0; n < hosts.size(); ++n) {
    NodeRest(a, n, &left, plan).Fill(round);
  }
}

}  // namespace fineserve::plan

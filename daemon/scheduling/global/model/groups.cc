#include "daemon/scheduling/global/model/groups.h"

#include <algorithm>
#include <vector>

namespace fineserve::plan {
namespace {

// Interchangeable GPUs, in ascending order.
using Class = absl::InlinedVector<uint32_t, 8>;

bool Interchangeable(const Assignment& a, uint32_t g, uint32_t h) {
  const Problem& p = a.problem();
  return p.gpus[g].Capacity() == p.gpus[h].Capacity() &&
         p.gpus[g].pool_bytes == p.gpus[h].pool_bytes &&
         p.pin_class[g] == p.pin_class[h] && a.On(g) == a.On(h);
}

// Extends `chosen` by `wanted` GPUs of classes[from..].
void Combine(const std::vector<Class>& classes, size_t from, size_t wanted,
             Group* chosen, absl::FunctionRef<void(const Group&)> visit) {
  if (wanted == 0) {
    Group group = *chosen;
    std::sort(group.begin(), group.end());
    visit(group);
    return;
  }
  if (from == classes.size()) return;
  const Class& c = classes[from];
  const size_t before = chosen->size();
  for (size_t taken = std::min(wanted, c.size());; --taken) {
    chosen->insert(chosen->end(), c.begin(),
                   c.begin() + static_cast<long>(taken));
    Combine(classes, from + 1, wanted - taken, chosen, visit);
    chosen->resize(before);
    if (taken == 0) break;
  }
}

}  // namespace

void ForEachCombination(const Assignment& a, uint32_t node, uint32_t tp,
                        absl::FunctionRef<bool(uint32_t gpu)> takes,
                        absl::FunctionRef<void(const Group&)> visit) {
  const Problem& p = a.problem();
  const uint32_t begin = p.node_begins[node], end = p.node_begins[node + 1];
  if (end - begin < tp) return;
  if (tp == 1) {
    for (uint32_t g = begin; g < end; ++g) {
      if (takes(g)) visit({g});
    }
    return;
  }
  std::vector<Class> classes;
  for (uint32_t g = begin; g < end; ++g) {
    if (!takes(g)) continue;
    auto same = std::find_if(
        classes.begin(), classes.end(),
        [&](const Class& c) { return Interchangeable(a, c.front(), g); });
    if (same == classes.end()) same = classes.insert(classes.end(), Class());
    same->push_back(g);
  }
  Group chosen;
  Combine(classes, 0, tp, &chosen, visit);
}

void ForEachGroupAmong(const Assignment& a, uint32_t replica, uint32_t node,
                       absl::FunctionRef<bool(uint32_t gpu)> takes,
                       absl::FunctionRef<void(const Group&)> visit) {
  const Problem& p = a.problem();
  const Replica& r = p.replicas[replica];
  if (r.groups.empty()) return ForEachCombination(a, node, r.tp, takes, visit);
  for (const Group& group : r.groups) {
    if (p.node_of[group.front()] != node) continue;
    if (std::all_of(group.begin(), group.end(), takes)) visit(group);
  }
}

void ForEachChoice(const Problem& p, const Replica& r,
                   absl::FunctionRef<void(absl::Span<const uint32_t>)> visit) {
  for (const Group& group : r.groups) visit(group);
  if (!r.groups.empty()) return;
  std::vector<uint32_t> gpus;
  for (size_t n = 0; n + 1 < p.node_begins.size(); ++n) {
    gpus.clear();
    for (uint32_t g = p.node_begins[n]; g < p.node_begins[n + 1]; ++g) {
      if (p.MayUse(r, g)) gpus.push_back(g);
    }
    visit(gpus);
  }
}

void ForEachGroupOfNode(const Assignment& a, uint32_t replica, uint32_t node,
                        Charge charge,
                        absl::FunctionRef<void(const Group&)> visit) {
  ForEachGroupAmong(
      a, replica, node, [&](uint32_t g) { return a.Takes(g, replica, charge); },
      visit);
}

void ForEachGroup(const Assignment& a, uint32_t replica, Charge charge,
                  absl::FunctionRef<void(const Group&)> visit) {
  const Problem& p = a.problem();
  for (uint32_t n = 0; n + 1 < p.node_begins.size(); ++n) {
    ForEachGroupOfNode(a, replica, n, charge, visit);
  }
}

}  // namespace fineserve::plan

#include "daemon/scheduling/global/model/problem.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::plan {
namespace {

void SetGpus(const Snapshot& s, Problem* p) {
  p->gpus = s.gpus;
  std::sort(p->gpus.begin(), p->gpus.end(), [](const Gpu& a, const Gpu& b) {
    return std::tie(a.node, a.name) < std::tie(b.node, b.name);
  });
  for (uint32_t g = 0; g < p->gpus.size(); ++g) {
    if (g == 0 || p->gpus[g].node != p->gpus[g - 1].node) {
      p->node_begins.push_back(g);
    }
    p->node_of.push_back(static_cast<uint32_t>(p->node_begins.size() - 1));
  }
  p->node_begins.push_back(static_cast<uint32_t>(p->gpus.size()));
  for (size_t n = 0; n + 1 < p->node_begins.size(); ++n) {
    const std::string& name = p->gpus[p->node_begins[n]].node;
    const auto known =
        std::find_if(s.nodes.begin(), s.nodes.end(),
                     [&name](const Node& node) { return node.name == name; });
    p->host_bytes.push_back(known == s.nodes.end() ? 0 : known->host_bytes);
  }
}

bool Names(const std::vector<std::string>& names, const Gpu& gpu) {
  return std::find(names.begin(), names.end(), gpu.name) != names.end();
}

// Returns the index of the model's group that has the GPU; if none has it, the
// number of groups.
size_t GroupWith(const ModelDemand& m, const Gpu& gpu) {
  const auto found =
      std::find_if(m.groups.begin(), m.groups.end(),
                   [&gpu](const auto& group) { return Names(group, gpu); });
  return static_cast<size_t>(found - m.groups.begin());
}

std::vector<bool> Allowed(const Problem& p, const ModelDemand& m) {
  if (m.pins.empty() && m.groups.empty()) return {};
  std::vector<bool> allowed;
  for (const Gpu& g : p.gpus) {
    const bool in_group = m.groups.empty() || GroupWith(m, g) < m.groups.size();
    allowed.push_back(in_group && (m.pins.empty() || Names(m.pins, g)));
  }
  return allowed;
}

// Those that pins do not break.
std::vector<Group> GroupsOf(const Problem& p, const ModelDemand& m) {
  std::vector<Group> groups;
  for (const std::vector<std::string>& names : m.groups) {
    Group group;
    for (uint32_t g = 0; g < p.gpus.size(); ++g) {
      const bool pinned = m.pins.empty() || Names(m.pins, p.gpus[g]);
      if (pinned && Names(names, p.gpus[g])) group.push_back(g);
    }
    if (group.size() == m.tp) groups.push_back(group);
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

void SetPinClasses(Problem* p) {
  // For each GPU, the models that may use it, each with its group there.
  std::vector<std::vector<std::pair<uint32_t, size_t>>> pinning(p->gpus.size());
  for (uint32_t m = 0; m < p->models.size(); ++m) {
    const std::vector<bool> allowed = Allowed(*p, p->models[m]);
    for (uint32_t g = 0; g < allowed.size(); ++g) {
      if (!allowed[g]) continue;
      pinning[g].emplace_back(m, GroupWith(p->models[m], p->gpus[g]));
    }
  }
  std::map<std::vector<std::pair<uint32_t, size_t>>, uint32_t> classes;
  for (const auto& models : pinning) {
    const auto next = static_cast<uint32_t>(classes.size());
    p->pin_class.push_back(classes.emplace(models, next).first->second);
  }
}

// Returns the largest number of replicas of this TP that have room if no two
// may share a GPU.
uint32_t MostReplicas(const Problem& p, const ModelDemand& m) {
  const std::vector<bool> allowed = Allowed(p, m);
  uint32_t most = 0;
  for (size_t n = 0; n + 1 < p.node_begins.size(); ++n) {
    uint32_t usable = 0;
    for (uint32_t g = p.node_begins[n]; g < p.node_begins[n + 1]; ++g) {
      usable += allowed.empty() || allowed[g];
    }
    most += usable / m.tp;
  }
  const size_t groups = m.groups.empty() ? most : m.groups.size();
  return std::max(std::min(most, static_cast<uint32_t>(groups)), 1u);
}

Replica MakeReplica(const ModelDemand& m, const Profile& profile,
                    const Sizing& sizing, const TokenTime& time) {
  const Footprint& each = sizing.each;
  const double tp = m.tp;
  const double tokens = m.prompt_tokens + m.output_tokens;
  Replica r;
  r.tp = m.tp;
  r.rate = m.rate / sizing.replicas;
  r.context_bytes = m.context_bytes;
  r.process_bytes = std::ceil(m.process_bytes);
  r.fixed_bytes = each.Fixed() / tp + r.context_bytes;
  r.floor_bytes = each.floor_bytes / tp;
  r.base_kv_bytes = each.kv_bytes / tp;
  r.weight_bytes = profile.weight_bytes / tp;
  r.curve = {time.c0, time.cd, tokens * profile.kv_token_bytes / tp,
             static_cast<double>(m.max_batch), r.rate * m.output_tokens};
  r.structural_mu = tp / profile.kv_token_bytes;
  r.pressure_v1 = r.rate / m.slo_ttft_s / tp;
  const double tpot = m.slo_tpot_s > 0 ? m.slo_tpot_s
                                       : Tpot(profile, Batches(profile).front(),
                                              m.prompt_tokens);
  r.pressure_v3 = r.rate * tokens * profile.kv_token_bytes / tpot / tp;
  return r;
}

using Indices = std::map<std::string, uint32_t>;  // by name

template <typename Named>
Indices IndicesOf(const std::vector<Named>& all) {
  Indices indices;
  for (uint32_t i = 0; i < all.size(); ++i) indices[all[i].name] = i;
  return indices;
}

// Sets the places that are off. Ignores entries that the snapshot does not
// know.
void SetOff(const Snapshot& s, Problem* p) {
  if (!s.off) return;
  const Indices gpus = IndicesOf(p->gpus), models = IndicesOf(p->models);
  p->off.emplace(p->models.size());
  for (const PlaceOff& place : *s.off) {
    const auto model = models.find(place.model);
    const auto gpu = gpus.find(place.gpu);
    if (model == models.end() || gpu == gpus.end()) continue;
    (*p->off)[model->second].push_back({gpu->second, place.rests});
  }
  for (std::vector<OffOn>& places : *p->off) {
    std::sort(places.begin(), places.end(),
              [](const OffOn& a, const OffOn& b) { return a.gpu < b.gpu; });
  }
}

void SetCurrent(const Snapshot& s, Problem* p) {
  const Indices gpu_of = IndicesOf(p->gpus), model_of = IndicesOf(p->models);
  // Ordered by name, so that the order in the snapshot means nothing.
  std::map<uint32_t, std::vector<Group>> groups;
  for (const Placed& placed : s.current) {
    const auto model = model_of.find(placed.model);
    if (model == model_of.end()) continue;
    Group group;
    for (const std::string& name : placed.gpus) {
      if (const auto g = gpu_of.find(name); g != gpu_of.end()) {
        group.push_back(g->second);
      }
    }
    std::sort(group.begin(), group.end());
    const bool whole =
        group.size() == p->models[model->second].tp &&
        p->node_of[group.front()] == p->node_of[group.back()] &&
        std::adjacent_find(group.begin(), group.end()) == group.end();
    if (whole) groups[model->second].push_back(group);
  }
  p->current.resize(p->replicas.size());
  for (auto& [model, lie] : groups) {
    std::sort(lie.begin(), lie.end());
    const uint32_t first = p->first_replica[model];
    const size_t n = std::min<size_t>(
        lie.size(), p->first_replica[model + 1] - size_t{first});
    for (size_t i = 0; i < n; ++i) p->current[first + i] = lie[i];
  }
}

}  // namespace

bool Problem::MayUse(const Replica& r, const Group& group) const {
  return r.groups.empty() ||
         std::binary_search(r.groups.begin(), r.groups.end(), group);
}

std::string Problem::NameOf(uint32_t replica) const {
  const Replica& r = replicas[replica];
  if (first_replica[r.model + 1] - first_replica[r.model] == 1) {
    return models[r.model].name;
  }
  return absl::StrCat(models[r.model].name, "#", r.number);
}

absl::StatusOr<Problem> MakeProblem(const Snapshot& snapshot,
                                    const ProblemOptions& options) {
  if (const auto bad = CheckSnapshot(snapshot); !bad.ok()) return bad;
  Problem p;
  p.co_tenant_slowdown = options.co_tenant_slowdown;
  p.burst = options.burst;
  SetGpus(snapshot, &p);
  p.models = snapshot.models;
  std::sort(p.models.begin(), p.models.end(),
            [](const ModelDemand& a, const ModelDemand& b) {
              return a.name < b.name;
            });
  for (uint32_t m = 0; m < p.models.size(); ++m) {
    const ModelDemand& model = p.models[m];
    const Profile& profile = *FindProfile(snapshot.profiles, model);
    const auto time =
        FitTokenTime(profile, model.prompt_tokens, model.output_tokens);
    if (!time.ok()) return time.status();
    p.sizings.push_back(
        SizeModel(model, profile, options.footprint, MostReplicas(p, model)));
    p.first_replica.push_back(static_cast<uint32_t>(p.replicas.size()));
    Replica replica = MakeReplica(model, profile, p.sizings.back(), *time);
    replica.model = m;
    replica.allowed = Allowed(p, model);
    replica.groups = GroupsOf(p, model);
    for (uint32_t n = 0; n < p.sizings.back().replicas; ++n) {
      replica.number = n;
      p.replicas.push_back(replica);
    }
  }
  p.first_replica.push_back(static_cast<uint32_t>(p.replicas.size()));
  SetPinClasses(&p);
  SetCurrent(snapshot, &p);
  SetOff(snapshot, &p);
  return p;
}

}  // namespace fineserve::plan

#include "daemon/scheduling/global/model/snapshot.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"

namespace fineserve::plan {
namespace {

constexpr uint32_t kMostReplicas = 4096;

absl::Status Bad(const char* what, const std::string& name,
                 const std::string& trouble) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " \"", name, "\": ", trouble));
}

bool NotNegative(double value) { return std::isfinite(value) && value >= 0; }

absl::Status CheckNumbers(const ModelDemand& m) {
  const auto bad = [&m](const std::string& trouble) {
    return Bad("model", m.name, trouble);
  };
  if (!Positive(m.rate)) {
    return bad(absl::StrCat("its rate is ", m.rate,
                            " requests/s; give what you expect, or leave the "
                            "model out"));
  }
  if (!Positive(m.prompt_tokens) || !Positive(m.output_tokens)) {
    return bad("mean prompt and output tokens must be above 0");
  }
  if (!Positive(m.slo_ttft_s)) {
    return bad("no TTFT SLO; give one above 0 seconds");
  }
  if (!NotNegative(m.slo_tpot_s)) return bad("its TPOT SLO is not a time");
  if (!NotNegative(m.floor_bytes)) return bad("its floor is not a size");
  if (!NotNegative(m.context_bytes)) return bad("its context is not a size");
  if (!NotNegative(m.process_bytes)) return bad("its process is not a size");
  if (m.may_rest && m.tp > 1) {
    return bad("may_rest, with a TP above 1: a place is one GPU; leave it out");
  }
  if (m.max_batch == 0) return bad("max_batch is 0; give at least 1");
  if (m.replicas > kMostReplicas) {
    return bad(
        absl::StrCat(m.replicas, " replicas; ask for at most ", kMostReplicas));
  }
  return absl::OkStatus();
}

std::string Known(const std::vector<Profile>& profiles) {
  if (profiles.empty()) return "there is none at all";
  return absl::StrCat("there is, among ", profiles.size(), ", ",
                      profiles[0].Title());
}

absl::Status CheckGroups(const Snapshot& s, const ModelDemand& m) {
  std::set<std::string> seen;
  for (const std::vector<std::string>& group : m.groups) {
    if (group.size() != m.tp) {
      return Bad("model", m.name,
                 absl::StrCat("a group of ", group.size(), " GPUs and a TP of ",
                              m.tp, "; give each group as many GPUs"));
    }
    std::set<std::string> nodes;
    for (const Gpu& g : s.gpus) {
      if (std::find(group.begin(), group.end(), g.name) == group.end()) {
        continue;
      }
      nodes.insert(g.node);
      if (seen.insert(g.name).second) continue;
      return Bad("model", m.name,
                 absl::StrCat("GPU \"", g.name,
                              "\" is in two groups; list each GPU once"));
    }
    if (nodes.size() != 1) {
      return Bad("model", m.name,
                 "a group is not within one node; mend its GPUs");
    }
  }
  const size_t listed = m.groups.size() * m.tp;
  return seen.size() == listed
             ? absl::OkStatus()
             : Bad("model", m.name,
                   "its groups name a GPU that there is not, or one twice; "
                   "mend them");
}

absl::Status CheckModel(const Snapshot& s, const ModelDemand& m,
                        const std::set<std::string>& gpus) {
  if (m.name.empty()) return Bad("model", "", "has no name; give it one");
  if (const auto bad = CheckNumbers(m); !bad.ok()) return bad;
  if (FindProfile(s.profiles, m) == nullptr) {
    return Bad(
        "model", m.name,
        absl::StrCat("no profile of ", m.architecture, " ", m.quantisation,
                     ", TP ", m.tp, " (", Known(s.profiles),
                     "); measure one with `fsctl "
                     "profile`"));
  }
  if (const auto bad = CheckGroups(s, m); !bad.ok()) return bad;
  for (const std::string& pin : m.pins) {
    if (gpus.count(pin) == 0) {
      return Bad("model", m.name,
                 absl::StrCat("is pinned to GPU \"", pin,
                              "\", which there is not; mend the pin"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGpu(const Gpu& g) {
  if (g.name.empty()) return Bad("GPU", "", "has no name; give it one");
  if (!Positive(g.memory_bytes) || !NotNegative(g.taken_bytes)) {
    return Bad("GPU", g.name, "its memory is not a size above 0");
  }
  if (g.taken_bytes >= g.memory_bytes) {
    return Bad("GPU", g.name, "others have taken all of it; leave it out");
  }
  if (!NotNegative(g.pool_bytes) || g.pool_bytes >= g.Capacity()) {
    return Bad("GPU", g.name,
               "its pool is not a size that leaves memory for weights; make it "
               "smaller");
  }
  return absl::OkStatus();
}

absl::Status CheckNodes(const std::vector<Node>& nodes) {
  std::set<std::string> names;
  for (const Node& n : nodes) {
    if (!Positive(n.host_bytes)) {
      return Bad("node", n.name,
                 "its host memory is not a size above 0; leave the node out if "
                 "it is not known");
    }
    if (!names.insert(n.name).second) {
      return Bad("node", n.name, "is there twice; name each once");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string NodeTitle(const std::string& name) {
  return name.empty() ? "the machine" : absl::StrCat("node \"", name, "\"");
}

const Profile* FindProfile(const std::vector<Profile>& profiles,
                           const ModelDemand& model) {
  for (const Profile& p : profiles) {
    if (p.architecture == model.architecture &&
        p.quantisation == model.quantisation && p.tp == model.tp) {
      return &p;
    }
  }
  return nullptr;
}

absl::Status CheckSnapshot(const Snapshot& s) {
  if (s.gpus.empty()) {
    return absl::InvalidArgumentError("there is no GPU; name at least one");
  }
  std::set<std::string> gpus, models, profiles;
  for (const Gpu& g : s.gpus) {
    if (const auto bad = CheckGpu(g); !bad.ok()) return bad;
    if (!gpus.insert(g.name).second) {
      return Bad("GPU", g.name, "is there twice; name each once");
    }
  }
  for (const Profile& p : s.profiles) {
    if (const auto bad = CheckProfile(p); !bad.ok()) return bad;
    if (!profiles.insert(p.Title()).second) {
      return Bad("profile", p.Title(), "is there twice; keep one");
    }
  }
  for (const ModelDemand& m : s.models) {
    if (const auto bad = CheckModel(s, m, gpus); !bad.ok()) return bad;
    if (!models.insert(m.name).second) {
      return Bad("model", m.name, "is there twice; name each once");
    }
  }
  return CheckNodes(s.nodes);
}

}  // namespace fineserve::plan

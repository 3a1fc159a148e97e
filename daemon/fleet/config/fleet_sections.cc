#include "daemon/fleet/config/fleet_sections.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "daemon/fleet/config/address.h"
#include "daemon/fleet/config/fleet_places.h"
#include "daemon/scheduling/global/model/policy_names.h"

namespace fineserve::config {
namespace {

constexpr double kHour = 3600;
constexpr double kDay = 24 * kHour;
constexpr double kMostGain = 10;

// Names what the planner needs and the model lacks; empty if nothing.
std::string Lacking(const FleetModel& model, const FleetEngine& place) {
  if (!model.measured) return "a profile file";
  if (model.measured->weight_bytes <= 0) {
    return "weight_bytes in its profile file";
  }
  if (model.measured->kv_token_bytes == 0) {
    return "kv_token_bytes in its profile file";
  }
  if (model.measured->points.empty()) {
    return "at least one [[point]] in its profile file";
  }
  const size_t ranks = place.Gpus().size();
  if (model.measured->tp == ranks) return "";
  return absl::StrCat("tp = ", ranks, " in its profile file, since a place is ",
                      ranks == 1 ? "one GPU" : absl::StrCat(ranks, " GPUs"));
}

// Returns another engine of the same model that never moves; null if there is
// none.
const FleetEngine* FixedSibling(const Fleet& fleet, const FleetEngine& place) {
  for (const FleetEngine& e : fleet.engines) {
    if (e.model == place.model && !e.is_place) return &e;
  }
  return nullptr;
}

constexpr char kHost[] = "{host}";
constexpr uint32_t kLeastTtlS = 5;
constexpr size_t kMostMachines = 64;

absl::Status WrongCluster(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("[cluster]: ", what));
}

// A name is part of keys in etcd and of what fsctl prints.
bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  absl::string_view("-_.").find(c) != absl::string_view::npos;
         });
}

Setter Gpus(std::vector<std::string>* gpus) {
  return List("a list of UUIDs, like [\"GPU-8f0c3f1e\"]",
              [gpus](const toml::node& one) {
                std::string text;
                absl::Status s = Text(&text)(one);
                gpus->push_back(GpuOf(text).uuid);
                return s;
              });
}

Setter OneMachine(const std::string& path, std::vector<Machine>* machines) {
  return [=](const toml::node& node) {
    Machine m;
    const absl::Status s =
        Section(path, {{"name", Text(&m.name)},
                       {"host", Text(&m.host)},
                       {"gpus", Gpus(&m.gpus)},
                       {"host_memory", ByteSize(&m.host_bytes)}})(node);
    if (!s.ok()) return s;
    if (!IsName(m.name) || m.host.empty() || m.gpus.empty()) {
      return At(path, node.source(),
                "a machine needs name (letters, digits, -, _ and .), host and "
                "gpus, like { name = \"a\", host = \"10.0.0.1\", gpus = "
                "[\"GPU-8f0c3f1e\"] }");
    }
    machines->push_back(std::move(m));
    return absl::OkStatus();
  };
}

Setter Members(std::vector<HostPort>* members) {
  return List("a list of addresses, like [\"127.0.0.1:2379\"]",
              [members](const toml::node& one) {
                std::string text;
                absl::Status s = Text(&text)(one);
                if (!s.ok()) return s;
                HostPort member;
                s = SplitAddress(text, &member.host, &member.port);
                if (!s.ok() || member.port == 0) {
                  return WrongType("addresses, like \"127.0.0.1:2379\"");
                }
                members->push_back(std::move(member));
                return s;
              });
}

absl::Status CheckMachine(const Machine& m, const ClusterSettings& cluster) {
  for (const Machine& other : cluster.machines) {
    if (&other == &m) continue;
    if (other.name == m.name) {
      return WrongCluster(
          absl::StrCat("two machines \"", m.name, "\"; rename one"));
    }
    for (const std::string& gpu : m.gpus) {
      if (cluster.MachineOf(gpu) == &m) continue;
      return WrongCluster(
          absl::StrCat("\"", gpu, "\" of machine \"", m.name,
                       "\" may be a GPU of another machine, too; "
                       "write more of its UUID"));
    }
  }
  if (cluster.port + m.gpus.size() - 1 <= kMostPort) return absl::OkStatus();
  return WrongCluster(
      absl::StrCat("machine \"", m.name, "\" has ", m.gpus.size(),
                   " GPUs, which need ports from ", cluster.port,
                   " on; give port a smaller number"));
}

// True if the authority, the part of a URL in front of its path, has a port.
// The colons of an IPv6 address are within brackets.
bool HasPort(absl::string_view authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  return colon != authority.npos &&
         (bracket == authority.npos || colon > bracket);
}

// "https://api.example.com/v1".
bool ReadUrl(absl::string_view text, OutsideModel* out) {
  absl::string_view rest = text;
  out->tls = absl::ConsumePrefix(&rest, "https://");
  if (!out->tls && !absl::ConsumePrefix(&rest, "http://")) return false;
  const size_t slash = std::min(rest.find('/'), rest.size());
  out->path = std::string(absl::StripSuffix(rest.substr(slash), "/"));
  std::string authority(rest.substr(0, slash));
  if (!HasPort(authority))
    absl::StrAppend(&authority, out->tls ? ":443" : ":80");
  return out->path.find_first_of(" ?#") == out->path.npos &&
         SplitAddress(authority, &out->host, &out->port).ok() && out->port != 0;
}

Setter Url(OutsideModel* out) {
  return [=](const toml::node& node) {
    std::string text;
    if (absl::Status s = Text(&text)(node); !s.ok()) return s;
    if (ReadUrl(text, out)) return absl::OkStatus();
    return WrongType("a URL, like \"https://api.example.com/v1\"");
  };
}

absl::Status Wrong(const FleetModel& model, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("model \"", model.name,
                                                 "\": fallback = \"",
                                                 model.fallback, "\" ", what));
}

absl::Status CheckFallback(const Fleet& fleet, const FleetModel& model) {
  const FleetModel* at = &model;
  for (size_t steps = 0; !at->fallback.empty(); ++steps) {
    if (fleet.Outside(at->fallback) != nullptr) return absl::OkStatus();
    const size_t next = fleet.ModelIndex(at->fallback);
    if (next == fleet.models.size()) {
      return Wrong(*at, "is neither a [[model]] nor an [[outside]]");
    }
    if (steps == fleet.models.size()) return Wrong(model, "leads in a circle");
    at = &fleet.models[next];
  }
  return absl::OkStatus();
}

}  // namespace

Setter Planner(const std::string& path, PlannerSettings* planner) {
  return [=](const toml::node& node) {
    planner->on = true;
    const absl::Status s = Section(
        path,
        {{"policy", OneOf(&planner->policy, {std::begin(plan::kPolicyNames),
                                             std::end(plan::kPolicyNames)})},
         {"period", AmountIn(&planner->period_s, 1, kHour)},
         {"window", AmountIn(&planner->window_s, 1, kDay)},
         {"least_gain", AmountIn(&planner->least_gain, 0, kMostGain)},
         {"cool_down", AmountIn(&planner->cool_down_s, 0, kDay)},
         {"start", AmountIn(&planner->start_s, 1, kDay)},
         {"drain", AmountIn(&planner->drain_s, 0, kDay)},
         {"host_memory", ByteSize(&planner->host_bytes)}})(node);
    if (!s.ok() || planner->window_s >= planner->period_s) return s;
    return At(path, node.source(),
              absl::StrCat("[planner]: window is ", planner->window_s,
                           " s, less than period, ", planner->period_s,
                           " s; raise window"));
  };
}

Setter Expected(const std::string& path, FleetModel* model) {
  return [=](const toml::node& node) {
    const absl::Status wrong = WrongType(
        "like { rate = 2.5, prompt_tokens = 242, output_tokens = 327 }");
    if (!node.is_table()) return wrong;
    const absl::Status s = Section(
        path,
        {{"rate", Amount(&model->expected_rate)},
         {"prompt_tokens", Amount(&model->expected_prompt_tokens)},
         {"output_tokens", Amount(&model->expected_output_tokens)}})(node);
    if (!s.ok()) return s;
    const bool whole =
        model->expected_prompt_tokens > 0 && model->expected_output_tokens > 0;
    return whole ? absl::OkStatus() : wrong;
  };
}

absl::Status CheckPlanned(const Fleet& fleet) {
  for (const FleetEngine& engine : fleet.engines) {
    if (!engine.is_place) continue;
    if (!fleet.planner.on) {
      return absl::InvalidArgumentError(
          absl::StrCat("engine \"", engine.name,
                       "\" comes from a list of gpus, of which a planner "
                       "chooses; add [planner], or give gpu instead of gpus"));
    }
    if (const FleetEngine* fixed = FixedSibling(fleet, engine)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "engine \"", fixed->name, "\" of model \"", engine.model,
          "\" has no gpus, but engine \"", engine.name,
          "\" does; a planner moves all engines of a model or none, so give "
          "all of them gpus, or none"));
    }
    const std::string lacking =
        Lacking(fleet.models[fleet.ModelIndex(engine.model)], engine);
    if (lacking.empty()) continue;
    const size_t ranks = engine.Gpus().size();
    return absl::InvalidArgumentError(absl::StrCat(
        "model \"", engine.model, "\": the planner needs ", lacking,
        "; measure a running engine of it with: fsctl profile URL ",
        ranks > 1 ? absl::StrCat("--tp ", ranks, " ") : "",
        "--weights 15GiB --kv-token-bytes 131072 --output FILE, and set "
        "profile = \"FILE\""));
  }
  return absl::OkStatus();
}

Setter Cluster(const std::string& path, ClusterSettings* cluster) {
  return [=](const toml::node& node) {
    uint32_t port = cluster->port;
    const absl::Status s = Section(
        path,
        {{"name", Text(&cluster->name)},
         {"etcd", Members(&cluster->etcd)},
         {"port", Count(&port, 1, kMostPort)},
         {"ttl",
          Count(&cluster->ttl_s, kLeastTtlS, ClusterSettings::kMostTtlS)},
         {"machines", List("a list of machines, like [{ name = \"a\", host = "
                           "\"10.0.0.1\", gpus = [\"GPU-8f0c3f1e\"] }]",
                           OneMachine(path, &cluster->machines))}})(node);
    cluster->port = static_cast<uint16_t>(port);
    return s;
  };
}

absl::Status CheckCluster(const Fleet& fleet) {
  const ClusterSettings& cluster = fleet.cluster;
  if (!IsName(cluster.name)) {
    return WrongCluster("name is letters, digits, -, _ and .");
  }
  if (cluster.machines.size() > kMostMachines) {
    return WrongCluster(absl::StrCat("more than ", kMostMachines, " machines"));
  }
  for (const Machine& m : cluster.machines) {
    if (absl::Status s = CheckMachine(m, cluster); !s.ok()) return s;
  }
  if (!cluster.IsOn()) return absl::OkStatus();
  if (cluster.etcd.empty()) {
    return WrongCluster(
        "several machines need etcd; name this machine's member of it, like "
        "etcd = [\"127.0.0.1:2379\"]");
  }
  for (const FleetEngine& engine : fleet.engines) {
    const Machine* first = cluster.MachineOf(engine.gpu);
    for (const std::string& gpu : engine.Gpus()) {
      const Machine* its = cluster.MachineOf(gpu);
      if (its == nullptr) {
        return WrongEngine(engine,
                           absl::StrCat("no machine of [cluster] has its GPU ",
                                        gpu.empty() ? "(it names none)" : gpu,
                                        "; add it to the gpus of one"));
      }
      if (its != first) {
        return WrongEngine(
            engine, absl::StrCat("its GPUs ", engine.gpu, " and ", gpu,
                                 " are of two machines; give it GPUs of one"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PlaceOnMachines(Fleet* fleet) {
  for (FleetEngine& engine : fleet->engines) {
    const Machine* machine = fleet->cluster.MachineOf(engine.gpu);
    if (machine == nullptr) {
      if (engine.host != kHost) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "engine \"", engine.name,
          "\": {host} is the host of the machine that has its GPU, and no "
          "machine of [cluster] has ",
          engine.gpu.empty() ? "it" : engine.gpu));
    }
    if (engine.host == kHost) engine.host = machine->host;
    for (std::string& word : engine.command) {
      word = absl::StrReplaceAll(word, {{kHost, machine->host}});
    }
  }
  return absl::OkStatus();
}

Setter Outside(const std::string& path, std::vector<OutsideModel>* outside) {
  return Sections("outside", [=](const toml::node& node) {
    OutsideModel o;
    const absl::Status s = Section(path, {{"name", Text(&o.name)},
                                          {"url", Url(&o)},
                                          {"model", Text(&o.model)},
                                          {"key", Text(&o.key_path)}})(node);
    if (!s.ok()) return s;
    if (o.name.empty() || o.host.empty()) {
      return At(path, node.source(), "an [[outside]] needs name and url");
    }
    if (o.model.empty()) o.model = o.name;
    outside->push_back(std::move(o));
    return absl::OkStatus();
  });
}

absl::Status CheckFallbacks(const Fleet& fleet) {
  for (const OutsideModel& outside : fleet.outside) {
    const bool is_taken = fleet.Outside(outside.name) != &outside ||
                          std::any_of(fleet.models.begin(), fleet.models.end(),
                                      [&](const FleetModel& model) {
                                        return model.HasName(outside.name);
                                      });
    if (!is_taken) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "[[outside]] \"", outside.name, "\": another model has this name"));
  }
  for (const FleetModel& model : fleet.models) {
    const absl::Status s = CheckFallback(fleet, model);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace fineserve::config

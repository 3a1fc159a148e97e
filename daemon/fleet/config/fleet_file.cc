// Reads the fleet file.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "daemon/fleet/config/address.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/config/fleet_places.h"
#include "daemon/fleet/config/fleet_sections.h"
#include "daemon/fleet/config/profile_file.h"
#include "daemon/fleet/config/stock_engine.h"
#include "daemon/fleet/config/toml_keys.h"

namespace fineserve::config {
namespace {

constexpr uint32_t kLongestMs = 3'600'000;
constexpr uint32_t kMostTokens = 1 << 24;
constexpr uint32_t kMostReplicas = 64;

Setter Address(std::string* host, uint16_t* port) {
  return [=](const toml::node& node) {
    std::string text;
    absl::Status s = Text(&text)(node);
    return s.ok() ? SplitAddress(text, host, port) : s;
  };
}

Setter Url(std::string* host, uint16_t* port) {
  return [=](const toml::node& node) {
    std::string text;
    if (absl::Status s = Text(&text)(node); !s.ok()) return s;
    absl::string_view rest = text;
    const bool http = absl::ConsumePrefix(&rest, "http://");
    absl::ConsumeSuffix(&rest, "/");
    if (http && SplitAddress(rest, host, port).ok() && *port != 0) {
      return absl::OkStatus();
    }
    return WrongType("a URL with its port, like \"http://127.0.0.1:9001\"");
  };
}

// A setter for one of two words; sets `*is_first` to true if it is the first
// one.
Setter EitherOf(bool* is_first, const char* first, const char* second) {
  return [=](const toml::node& node) {
    std::string text;
    absl::Status s = OneOf(&text, {first, second})(node);
    *is_first = text == first;
    return s;
  };
}

// A setter for "refuse", "forward", or a list of paths.
Setter Others(OtherPaths* others) {
  return [=](const toml::node& node) {
    if (!node.is_array()) {
      return EitherOf(&others->all, "forward", "refuse")(node);
    }
    if (absl::Status s = Texts(&others->listed)(node); !s.ok()) return s;
    for (const std::string& path : others->listed) {
      if (absl::StartsWith(path, "/")) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", path, "\" is no path; write it like \"/v1/tools\""));
    }
    return absl::OkStatus();
  };
}

// True for an origin in the form that a browser sends: no path after the host,
// not even a slash.
bool IsOrigin(absl::string_view origin) {
  if (origin == "*") return true;
  const size_t host = origin.find("://");
  return host != absl::string_view::npos && host > 0 &&
         origin.size() > host + 3 &&
         origin.find('/', host + 3) == absl::string_view::npos;
}

Setter Origins(std::vector<std::string>* origins) {
  return [=](const toml::node& node) {
    if (absl::Status s = Texts(origins)(node); !s.ok()) return s;
    for (const std::string& origin : *origins) {
      if (IsOrigin(origin)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("\"", origin,
                       "\" is no origin; write it like "
                       "\"http://localhost:5173\", or \"*\" for all"));
    }
    return absl::OkStatus();
  };
}

Setter Proxy(const std::string& path, ProxySettings* p) {
  return Section(
      path,
      {{"listen", Address(&p->listen_host, &p->listen_port)},
       {"admin", Address(&p->admin_host, &p->admin_port)},
       {"without_daemon", EitherOf(&p->fail_open, "fail_open", "fail_closed")},
       {"replicas", EitherOf(&p->least_load, "least_load", "predicted_ttft")},
       {"other_paths", Others(&p->other_paths)},
       {"keys", Text(&p->keys_path)},
       {"ledger", Text(&p->ledger_path)},
       {"open", Flag(&p->open)},
       {"service_fields", EitherOf(&p->all_may_set_service, "all", "trusted")},
       {"origins", Origins(&p->origins)},
       {"admin_names", Texts(&p->admin_names)},
       {"drain", Count(&p->drain_s, 0, 3600)},
       {"engine_timeout", Count(&p->engine_timeout_s, 1, 3600)}});
}

Setter Overload(const std::string& path, OverloadSettings* o) {
  return Section(path, {{"drop", EitherOf(&o->may_drop, "auto", "never")},
                        {"link_gb_s", AmountIn(&o->link_gb_s, 1, 1e5)},
                        {"rereads", Count(&o->rereads, 1, 1024)}});
}

Setter ProfileFile(const std::string& path, FleetModel* m) {
  return ProfileKey(path, "profile",
                    [m](const std::string& found, const MeasuredProfile& file) {
                      m->profile_path = found;
                      m->profile = file.step;
                      m->kv_token_bytes = file.kv_token_bytes;
                      m->measured = file;
                    });
}

Setter Profile(const std::string& path, FleetModel* m) {
  return [=](const toml::node& node) {
    if (node.is_string()) return ProfileFile(path, m)(node);
    if (!node.is_table()) {
      return WrongType(
          "a file in quotes, or like { base_us = 8000, per_token_us = 110, "
          "per_sequence_us = 60 }");
    }
    StepProfile& p = m->profile.emplace();
    return Section(path,
                   {{"base_us", Amount(&p.base_us)},
                    {"per_token_us", Amount(&p.per_token_us)},
                    {"per_sequence_us", Amount(&p.per_sequence_us)}})(node);
  };
}

// Says what this model lacks or has wrong, with the fix; empty if nothing.
std::string Trouble(const FleetModel& model) {
  if (model.name.empty()) return "a [[model]] needs a name";
  for (const auto& names : {model.aliases, model.adapters}) {
    if (std::count(names.begin(), names.end(), "") == 0) continue;
    return absl::StrCat("model \"", model.name,
                        "\" has an alias or an adapter without a name");
  }
  const std::string who = absl::StrCat("model \"", model.name, "\" needs ");
  if (model.slo_ttft_ms == 0) return who + "slo_ttft_ms, like 800";
  if (model.profile && model.profile->per_token_us <= 0) {
    return who +
           "per_token_us in its profile, like { base_us = 8000, per_token_us = "
           "110, per_sequence_us = 60 }, or no profile";
  }
  return "";
}

// Returns a name of this model by which clients could also mean another model;
// empty if there is none.
std::string NameInUse(const FleetModel& model, const Fleet& fleet) {
  std::set<std::string> its;
  const auto is_used = [&](const std::string& name) {
    return !its.insert(name).second ||
           std::any_of(fleet.models.begin(), fleet.models.end(),
                       [&](const FleetModel& m) { return m.HasName(name); });
  };
  if (is_used(model.name)) return model.name;
  for (const auto& names : {model.aliases, model.adapters}) {
    const auto used = std::find_if(names.begin(), names.end(), is_used);
    if (used != names.end()) return *used;
  }
  return "";
}

Setter Model(const std::string& path, Fleet* fleet) {
  return Sections("model", [=](const toml::node& node) {
    FleetModel m;
    uint32_t kv_token_bytes = 0;
    absl::Status s = Section(
        path,
        {{"name", Text(&m.name)},
         {"aliases", Texts(&m.aliases)},
         {"adapters", Texts(&m.adapters)},
         {"slo_ttft_ms", Count(&m.slo_ttft_ms, 1, kLongestMs)},
         {"slo_tpot_ms", Count(&m.slo_tpot_ms, 1, kLongestMs)},
         {"chunk_tokens", Count(&m.chunk_tokens, 1, kMostTokens)},
         {"max_batch", Count(&m.max_batch, 1, kMostTokens)},
         {"block_tokens", Count(&m.block_tokens, 1, kMostTokens)},
         {"kv_token_bytes", Count(&kv_token_bytes, 1, UINT32_MAX)},
         {"prompt_tokens", EitherOf(&m.counts_prompts, "exact", "estimate")},
         {"profile", Profile(path, &m)},
         {"expected", Expected(path, &m)},
         {"replicas", Count(&m.replicas, 0, kMostReplicas)},
         {"fallback", Text(&m.fallback)},
         {"context", ByteSize(&m.context_bytes)},
         {"process", ByteSize(&m.process_bytes)}})(node);
    if (!s.ok()) return s;
    // The fleet file's own value takes precedence over the profile's.
    m.kv_bytes_from_profile = kv_token_bytes == 0 && m.kv_token_bytes != 0;
    if (kv_token_bytes != 0) {
      m.kv_token_bytes = kv_token_bytes;
      if (m.measured) m.measured->kv_token_bytes = kv_token_bytes;
    }
    const std::string trouble = Trouble(m);
    if (!trouble.empty()) return At(path, node.source(), trouble);
    const std::string twice = NameInUse(m, *fleet);
    if (!twice.empty()) {
      return At(
          path, node.source(),
          absl::StrCat(twice == m.name ? "a second model \"" : "the alias \"",
                       twice, twice == m.name ? "\"" : "\" is in use"));
    }
    fleet->models.push_back(std::move(m));
    return absl::OkStatus();
  });
}

// An [[engine]] as written in the file.
struct WrittenEngine {
  FleetEngine engine;
  NamedGroup gpu;
  absl::optional<std::vector<NamedGroup>> gpus;  // if it lists its places
  StockEngine stock;
  toml::source_region source;
  // If true, {port} and the like in the command are replaced by the engine's
  // own values, as they are if it has `gpus`.
  bool is_filled_in = false;

  size_t ports() const { return gpus ? gpus->size() : 1; }
};

Setter Gpu(NamedGpu* gpu) {
  return [=](const toml::node& node) {
    std::string text;
    absl::Status s = Text(&text)(node);
    *gpu = GpuOf(text);
    return s;
  };
}

// A setter for a UUID, or a list of the UUIDs of an engine's ranks.
Setter RanksGpus(NamedGroup* group) {
  return [=](const toml::node& node) {
    const auto add = [group](const toml::node& one) {
      return Gpu(&group->emplace_back())(one);
    };
    if (node.is_string()) return add(node);
    return List(
        "a UUID, or a list of one for each rank, like "
        "[\"GPU-8f0c3f1e\", \"GPU-51d2a0b7\"]",
        add)(node);
  };
}

Setter Places(absl::optional<std::vector<NamedGroup>>* gpus) {
  return [=](const toml::node& node) {
    gpus->emplace();
    return List("a list of UUIDs, like [\"GPU-8f0c3f1e\"]",
                [gpus](const toml::node& one) {
                  return RanksGpus(&(*gpus)->emplace_back())(one);
                })(node);
  };
}

// Checks that the engine may join the fleet. Errors do not contain file and
// line.
absl::Status CheckEngine(const FleetEngine& e, const Fleet& fleet) {
  if (absl::Status s = CheckName(e); !s.ok()) return s;
  if (absl::Status s = CheckApart(e, fleet); !s.ok()) return s;
  if (absl::Status s = CheckIsNoProxy(e, fleet.proxy); !s.ok()) return s;
  if (e.gpu_by_index && (e.gpu.empty() || e.is_mig)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine \"", e.name,
        "\": gpu_by = \"index\" needs a gpu that is no MIG instance"));
  }
  if (!e.rank_gpus.empty() && e.NamesItsGpus()) {
    return WrongEngine(
        e,
        "a list of GPUs contradicts CUDA_VISIBLE_DEVICES in env; "
        "leave one of them out");
  }
  if (e.gpu_by_index && e.NamesItsGpus()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine \"", e.name,
        "\": gpu_by = \"index\" contradicts CUDA_VISIBLE_DEVICES in env"));
  }
  return CheckShare(e.floor_bytes, e.cap_bytes);
}

// Returns the ports of all addresses that the file gives.
std::set<uint16_t> GivenPorts(const std::vector<WrittenEngine>& engines,
                              const Fleet& fleet) {
  std::set<uint16_t> reported = {fleet.proxy.listen_port,
                                 fleet.proxy.admin_port};
  for (const WrittenEngine& written : engines) {
    for (size_t i = 0; written.engine.port != 0 && i < written.ports(); ++i) {
      reported.insert(static_cast<uint16_t>(written.engine.port + i));
    }
  }
  return reported;
}

// True if the engine takes its port from the file, whichever key gives it.
bool TakesItsPort(const WrittenEngine& written) {
  const std::vector<std::string>& command = written.engine.command;
  return !written.stock.kind.empty() ||
         std::any_of(command.begin(), command.end(),
                     [](const std::string& word) {
                       return absl::StrContains(word, "{port}");
                     });
}

// Gives the engine the name and the address that the file leaves out. `*ports`
// are in use. Errors do not contain file and line, as in Add.
absl::Status Derive(const Fleet& fleet, std::set<uint16_t>* ports,
                    WrittenEngine* written) {
  FleetEngine& e = written->engine;
  // Model names of a hub contain a slash, which an engine's name may not.
  if (e.name.empty()) e.name = absl::StrReplaceAll(e.model, {{"/", "-"}});
  if (e.name.empty()) {
    return absl::InvalidArgumentError(
        "an [[engine]] needs model, the name of a [[model]]");
  }
  written->is_filled_in = !written->stock.kind.empty() || e.host.empty();
  if (!e.host.empty()) return absl::OkStatus();
  if (!TakesItsPort(*written)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine \"", e.name,
        "\" needs url, like \"http://127.0.0.1:9001\", or {port} in its "
        "command"));
  }
  e.port = DerivedPort(e.name, written->ports(), *ports);
  if (e.port == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine \"", e.name, "\": no port is left for it; give it a url"));
  }
  e.host = fleet.cluster.IsOn() ? "{host}" : "127.0.0.1";
  for (size_t i = 0; i < written->ports(); ++i) {
    ports->insert(static_cast<uint16_t>(e.port + i));
  }
  return absl::OkStatus();
}

// Adds the written engine to the fleet.
absl::Status Add(const WrittenEngine& written, Fleet* fleet) {
  std::vector<FleetEngine> engines = {written.engine};
  if (!written.gpu.empty()) {
    absl::Status s = SetGpus(written.gpu, &engines[0]);
    if (!s.ok()) return s;
  }
  const size_t model = fleet->ModelIndex(written.engine.model);
  // CheckReferences reports a missing model.
  if (model < fleet->models.size()) {
    StockEngine stock = written.stock;
    stock.ranks = written.gpus && !written.gpus->empty()
                      ? written.gpus->front().size()
                      : engines[0].Gpus().size();
    absl::Status s = FillInCommand(stock, fleet->models[model], &engines[0]);
    if (!s.ok()) return s;
  }
  if (written.gpus) {
    absl::StatusOr<std::vector<FleetEngine>> places =
        PlacesOf(engines[0], *written.gpus);
    if (!places.ok()) return places.status();
    engines = *std::move(places);
  } else if (written.is_filled_in) {
    FillInOwn(&engines[0]);
  }
  for (FleetEngine& engine : engines) {
    if (absl::Status s = CheckEngine(engine, *fleet); !s.ok()) return s;
    fleet->engines.push_back(std::move(engine));
  }
  return absl::OkStatus();
}

// Adds all written engines, once models and machines are known.
absl::Status AddAll(const std::string& path, std::vector<WrittenEngine> engines,
                    Fleet* fleet) {
  std::set<uint16_t> ports = GivenPorts(engines, *fleet);
  for (WrittenEngine& written : engines) {
    absl::Status s = Derive(*fleet, &ports, &written);
    if (s.ok()) s = Add(written, fleet);
    if (!s.ok()) return At(path, written.source, s.message());
  }
  return absl::OkStatus();
}

Setter Start(FleetEngine* e) {
  return [=](const toml::node& node) {
    std::string start;
    absl::Status s = OneOf(&start, {"always", "on_request", "scaled"})(node);
    e->on_request = start == "on_request";
    e->is_scaled = start == "scaled";
    return s;
  };
}

Setter Engine(const std::string& path, std::vector<WrittenEngine>* engines) {
  return Sections("engine", [=](const toml::node& node) {
    WrittenEngine& written = engines->emplace_back();
    written.source = node.source();
    FleetEngine& e = written.engine;
    return Section(path,
                   {{"name", Text(&e.name)},
                    {"model", Text(&e.model)},
                    {"url", Url(&e.host, &e.port)},
                    {"gpu", RanksGpus(&written.gpu)},
                    {"gpus", Places(&written.gpus)},
                    {"gpu_by", EitherOf(&e.gpu_by_index, "index", "uuid")},
                    {"engine", OneOf(&written.stock.kind, {"vllm", "sglang"})},
                    {"checkpoint", Text(&written.stock.checkpoint)},
                    {"program", Text(&written.stock.program)},
                    {"arguments", Texts(&written.stock.arguments)},
                    {"command", Texts(&e.command)},
                    {"env", Variables(&e.environment)},
                    {"view", Flag(&e.view)},
                    {"restart_after", Count(&e.restart_after_s, 0, 86'400)},
                    {"start", Start(&e)},
                    {"stop_after", Count(&e.stop_after_s, 0, 86'400 * 365)},
                    {"evict", EitherOf(&e.may_evict, "auto", "never")},
                    {"evict_after", Count(&e.evict_after_s, 0, 86'400 * 365)},
                    {"target_rate", Amount(&e.target_rate)},
                    {"floor", ByteSize(&e.floor_bytes)},
                    {"cap", ByteSize(&e.cap_bytes)}})(node);
  });
}

// Checks that fsctl up can start the engine.
absl::Status CheckStart(const std::string& path, const Fleet& fleet,
                        const FleetEngine& engine) {
  const char* wrong = nullptr;
  if (engine.stop_after_s != 0 && !engine.on_request) {
    wrong = "stop_after needs start = \"on_request\"";
  } else if (engine.on_request && engine.command.empty()) {
    wrong = "start = \"on_request\" needs a command that fsctl up starts it by";
  } else if (engine.on_request && engine.is_place) {
    wrong =
        "start = \"on_request\" contradicts gpus: the planner says which "
        "places run; give it one gpu";
  } else if (engine.on_request && fleet.cluster.IsOn()) {
    wrong =
        "start = \"on_request\" is for fleets of one machine: fsctl up hears "
        "of no requests at other machines' proxies";
  }
  if (engine.is_scaled && !engine.command.empty()) {
    wrong =
        "start = \"scaled\" contradicts its command: an autoscaler starts it, "
        "not fsctl up; remove one of them";
  } else if (engine.is_scaled && fleet.planner.on) {
    wrong =
        "start = \"scaled\" contradicts [planner]: one of them says which "
        "replicas run; remove [planner], or give start another value";
  }
  if (wrong == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": engine \"", engine.name, "\": ", wrong));
}

// Makes the checks that need several sections.
absl::Status CheckReferences(const std::string& path, const Fleet& fleet) {
  for (const FleetEngine& engine : fleet.engines) {
    const size_t index = fleet.ModelIndex(engine.model);
    if (index == fleet.models.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": engine \"", engine.name, "\": no [[model]] \"",
                       engine.model, "\""));
    }
    if (absl::Status s = CheckStart(path, fleet, engine); !s.ok()) return s;
    if (engine.evict_after_s != 0 && !engine.may_evict) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": engine \"", engine.name,
                       "\": evict_after needs evict = \"auto\""));
    }
    if (!engine.view && fleet.models[index].kv_token_bytes == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": model \"", engine.model,
          "\" needs kv_token_bytes, KV bytes of a token over all layers, "
          "because engine \"",
          engine.name,
          "\" has no view to tell them; a profile file may give them too"));
    }
  }
  for (const FleetModel& model : fleet.models) {
    const bool served = std::any_of(
        fleet.engines.begin(), fleet.engines.end(),
        [&](const FleetEngine& engine) { return engine.model == model.name; });
    if (served) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": model \"", model.name, "\": no [[engine]] serves it"));
  }
  if (fleet.proxy.open && !fleet.proxy.keys_path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": [proxy] open = true contradicts keys; remove one of them"));
  }
  if (fleet.models.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no [[model]]; a fleet needs one"));
  }
  absl::Status whole = CheckPlanned(fleet);
  whole.Update(CheckFallbacks(fleet));
  if (whole.ok()) whole = CheckCluster(fleet);
  return whole.ok() ? whole
                    : absl::InvalidArgumentError(
                          absl::StrCat(path, ": ", whole.message()));
}

}  // namespace

absl::StatusOr<Fleet> ReadFleet(const std::string& path) {
  Fleet fleet;
  std::vector<WrittenEngine> engines;
  absl::Status s = ReadToml(
      path,
      {{"proxy", Proxy(path, &fleet.proxy)},
       {"scheduler",
        Section(path,
                {{"policy",
                  OneOf(&fleet.policy, {"fineserve", "moore-hodgson", "fcfs"})},
                 {"eviction",
                  OneOf(&fleet.eviction_policy, {"slack", "lru", "prism"})}})},
       {"overload", Overload(path, &fleet.overload)},
       {"planner", Planner(path, &fleet.planner)},
       {"cluster", Cluster(path, &fleet.cluster)},
       {"model", Model(path, &fleet)},
       {"outside", Outside(path, &fleet.outside)},
       {"engine", Engine(path, &engines)}});
  if (s.ok()) s = AddAll(path, std::move(engines), &fleet);
  if (s.ok()) s = CheckReferences(path, fleet);
  if (!s.ok()) return s;
  s = PlaceOnMachines(&fleet);
  if (!s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", s.message()));
  }
  return fleet;
}

}  // namespace fineserve::config

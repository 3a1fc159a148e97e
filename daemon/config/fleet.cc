#include "daemon/config/fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/config/address.h"
#include "daemon/config/profile_key.h"
#include "daemon/config/toml_keys.h"

namespace fineserve::config {
namespace {

constexpr uint32_t kLongestMs = 3'600'000;
constexpr uint32_t kMostTokens = 1 << 24;
constexpr absl::string_view kGpu = "GPU-";
constexpr absl::string_view kMig = "MIG-";

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

// One of two words; `*is_first` if it is the first of them.
Setter EitherOf(bool* is_first, const char* first, const char* second) {
  return [=](const toml::node& node) {
    std::string text;
    absl::Status s = OneOf(&text, {first, second})(node);
    *is_first = text == first;
    return s;
  };
}

Setter Proxy(const std::string& path, ProxySettings* p) {
  return Section(
      path,
      {{"listen", Address(&p->listen_host, &p->listen_port)},
       {"admin", Address(&p->admin_host, &p->admin_port)},
       {"without_daemon", EitherOf(&p->fail_open, "fail_open", "fail_closed")},
       {"replicas", EitherOf(&p->least_load, "least_load", "predicted_ttft")},
       {"other_paths", EitherOf(&p->forwards_others, "forward", "refuse")},
       {"keys", Text(&p->keys_path)},
       {"drain", Count(&p->drain_s, 0, 3600)}});
}

Setter ProfileFile(const std::string& path, FleetModel* m) {
  return ProfileKey(path, "profile",
                    [m](const std::string& found, const MeasuredProfile& file) {
                      m->profile_path = found;
                      m->profile = file.step;
                      m->kv_token_bytes = file.kv_token_bytes;
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

// What is missing, with the fix; empty if nothing is missing.
std::string Trouble(const FleetModel& model) {
  if (model.name.empty()) return "a [[model]] needs a name";
  const std::string who = absl::StrCat("model \"", model.name, "\" needs ");
  if (model.slo_ttft_ms == 0) return who + "slo_ttft_ms, like 800";
  if (model.profile && model.profile->per_token_us <= 0) {
    return who +
           "per_token_us in its profile, like { base_us = 8000, per_token_us = "
           "110, per_sequence_us = 60 }, or no profile";
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
         {"slo_ttft_ms", Count(&m.slo_ttft_ms, 1, kLongestMs)},
         {"slo_tpot_ms", Count(&m.slo_tpot_ms, 1, kLongestMs)},
         {"chunk_tokens", Count(&m.chunk_tokens, 1, kMostTokens)},
         {"max_batch", Count(&m.max_batch, 1, kMostTokens)},
         {"block_tokens", Count(&m.block_tokens, 1, kMostTokens)},
         {"kv_token_bytes", Count(&kv_token_bytes, 1, UINT32_MAX)},
         {"prompt_tokens", EitherOf(&m.counts_prompts, "exact", "estimate")},
         {"profile", Profile(path, &m)}})(node);
    if (!s.ok()) return s;
    // What the fleet file itself says comes first.
    m.kv_bytes_from_profile = kv_token_bytes == 0 && m.kv_token_bytes != 0;
    if (kv_token_bytes != 0) m.kv_token_bytes = kv_token_bytes;
    const std::string trouble = Trouble(m);
    if (!trouble.empty()) return At(path, node.source(), trouble);
    if (fleet->ModelIndex(m.name) < fleet->models.size()) {
      return At(path, node.source(),
                absl::StrCat("a second model \"", m.name, "\""));
    }
    fleet->models.push_back(std::move(m));
    return absl::OkStatus();
  });
}

// fineserved knows a MIG instance by the bytes of its UUID alone.
Setter GpuUuid(FleetEngine* e) {
  return [=](const toml::node& node) {
    std::string text;
    absl::Status s = Text(&text)(node);
    absl::string_view rest = text;
    e->is_mig = absl::ConsumePrefix(&rest, kMig);
    e->gpu = e->is_mig ? absl::StrCat(kGpu, rest) : text;
    return s;
  };
}

Setter Engine(const std::string& path, Fleet* fleet) {
  return Sections("engine", [=](const toml::node& node) {
    FleetEngine e;
    absl::Status s =
        Section(path, {{"name", Text(&e.name)},
                       {"model", Text(&e.model)},
                       {"url", Url(&e.host, &e.port)},
                       {"gpu", GpuUuid(&e)},
                       {"gpu_by", EitherOf(&e.gpu_by_index, "index", "uuid")},
                       {"command", Texts(&e.command)},
                       {"view", Flag(&e.view)},
                       {"target_rate", Amount(&e.target_rate)},
                       {"floor", ByteSize(&e.floor_bytes)},
                       {"cap", ByteSize(&e.cap_bytes)}})(node);
    if (!s.ok()) return s;
    if (e.name.empty() || e.host.empty()) {
      return At(path, node.source(),
                "an [[engine]] needs name and url, like name = \"llama-a\" and "
                "url = \"http://127.0.0.1:9001\"");
    }
    if (fleet->Engine(e.name) != nullptr) {
      return At(path, node.source(),
                absl::StrCat("a second engine \"", e.name, "\""));
    }
    if (e.gpu_by_index && (e.gpu.empty() || e.is_mig)) {
      return At(path, node.source(),
                absl::StrCat("engine \"", e.name,
                             "\": gpu_by = \"index\" needs a gpu that is no "
                             "MIG instance"));
    }
    if (s = CheckShare(e.floor_bytes, e.cap_bytes); !s.ok()) {
      return At(path, node.source(), s.message());
    }
    fleet->engines.push_back(std::move(e));
    return absl::OkStatus();
  });
}

// Checks what no single section can tell.
absl::Status CheckReferences(const std::string& path, const Fleet& fleet) {
  for (const FleetEngine& engine : fleet.engines) {
    const size_t index = fleet.ModelIndex(engine.model);
    if (index == fleet.models.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": engine \"", engine.name, "\": no [[model]] \"",
                       engine.model, "\""));
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
  if (fleet.models.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no [[model]]; a fleet needs one"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FleetEngine::CudaGpu() const {
  return is_mig ? absl::StrCat(kMig, absl::StripPrefix(gpu, kGpu)) : gpu;
}

size_t Fleet::ModelIndex(const std::string& name) const {
  return std::find_if(models.begin(), models.end(),
                      [&](const FleetModel& m) { return m.name == name; }) -
         models.begin();
}

const FleetEngine* Fleet::Engine(absl::string_view name) const {
  const auto found =
      std::find_if(engines.begin(), engines.end(),
                   [&](const FleetEngine& e) { return e.name == name; });
  return found == engines.end() ? nullptr : &*found;
}

Fleet Fleet::OfGpu(const std::string& gpu) const {
  Fleet part = *this;
  part.engines.erase(
      std::remove_if(part.engines.begin(), part.engines.end(),
                     [&](const FleetEngine& e) { return e.gpu != gpu; }),
      part.engines.end());
  return part;
}

absl::StatusOr<Fleet> ReadFleet(const std::string& path) {
  Fleet fleet;
  absl::Status s = ReadToml(
      path, {{"proxy", Proxy(path, &fleet.proxy)},
             {"scheduler",
              Section(path, {{"policy",
                              OneOf(&fleet.policy,
                                    {"fineserve", "moore-hodgson", "fcfs"})}})},
             {"model", Model(path, &fleet)},
             {"engine", Engine(path, &fleet)}});
  if (s.ok()) s = CheckReferences(path, fleet);
  if (!s.ok()) return s;
  return fleet;
}

}  // namespace fineserve::config

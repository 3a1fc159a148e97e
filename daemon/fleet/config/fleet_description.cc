#include "daemon/fleet/config/fleet_description.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "daemon/base/hash.h"

namespace fineserve::config {
namespace {

constexpr char kEngine[] = "engine ";
constexpr char kVariable[] = "env ";

class Digest {
 public:
  // Hashes the text with its length, so that two texts in a row differ from one
  // joined text.
  void Add(absl::string_view text) {
    hash_ = base::Hash(text, base::Hash(absl::StrCat(text.size(), ":"), hash_));
  }
  std::string text() const {
    return absl::StrCat(absl::Hex(hash_, absl::kZeroPad16));
  }

 private:
  uint64_t hash_ = base::kHashOfNothing;
};

std::string Yes(bool is) { return is ? "true" : "false"; }

std::string Words(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const std::string& w) {
    const bool plain = !w.empty() && w.find(' ') == std::string::npos;
    absl::StrAppend(out, plain ? w : absl::StrCat("\"", w, "\""));
  });
}

// Exact, unlike abi::SizeText.
std::string Bytes(uint64_t bytes) {
  constexpr uint64_t kMib = 1 << 20;
  if (bytes == 0) return "";
  return bytes % kMib == 0 ? absl::StrCat(bytes / kMib, "MiB")
                           : absl::StrCat(bytes);
}

std::string Step(const StepProfile& step) {
  return absl::StrCat(step.base_us, "/", step.per_token_us, "/",
                      step.per_sequence_us, " us");
}

SectionDescription DescribeProxy(const ProxySettings& p) {
  return {{"listen", absl::StrCat(p.listen_host, ":", p.listen_port)},
          {"admin", absl::StrCat(p.admin_host, ":", p.admin_port)},
          {"without_daemon", p.fail_open ? "fail_open" : "fail_closed"},
          {"replicas", p.least_load ? "least_load" : "predicted_ttft"},
          {"other_paths",
           p.other_paths.all ? "forward" : Words(p.other_paths.listed)},
          {"keys", p.keys_path},
          {"ledger", p.ledger_path},
          {"open", Yes(p.open)},
          {"service_fields", p.all_may_set_service ? "all" : "trusted"},
          {"origins", Words(p.origins)},
          {"admin_names", Words(p.admin_names)},
          {"drain", absl::StrCat(p.drain_s)},
          {"engine_timeout", absl::StrCat(p.engine_timeout_s)}};
}

SectionDescription DescribePlanner(const PlannerSettings& p) {
  return {{"policy", p.policy},
          {"period", absl::StrCat(p.period_s)},
          {"window", absl::StrCat(p.window_s)},
          {"least_gain", absl::StrCat(p.least_gain)},
          {"cool_down", absl::StrCat(p.cool_down_s)},
          {"start", absl::StrCat(p.start_s)},
          {"drain", absl::StrCat(p.drain_s)},
          {"host_memory", Bytes(p.host_bytes)}};
}

SectionDescription DescribeCluster(const ClusterSettings& c) {
  SectionDescription d = {
      {"name", c.name},
      {"etcd", absl::StrJoin(c.etcd, " ",
                             [](std::string* out, const HostPort& at) {
                               absl::StrAppend(out, at.host, ":", at.port);
                             })},
      {"port", absl::StrCat(c.port)},
      {"ttl", absl::StrCat(c.ttl_s)}};
  for (const Machine& m : c.machines) {
    d["machine " + m.name] =
        absl::StrCat(m.host, " ", absl::StrJoin(m.gpus, " "),
                     m.host_bytes == 0 ? "" : " ", Bytes(m.host_bytes));
  }
  return d;
}

// Returns the profile's path with a digest of its content, since the profile
// may have been measured again.
std::string DescribeProfile(const FleetModel& m) {
  if (m.measured) {
    Digest digest;
    digest.Add(ProfileText(*m.measured));
    return absl::StrCat(m.profile_path, " (", digest.text(), ")");
  }
  return m.profile ? Step(*m.profile) : "learnt while serving";
}

SectionDescription DescribeModel(const FleetModel& m) {
  return {{"aliases", absl::StrJoin(m.aliases, ", ")},
          {"adapters", absl::StrJoin(m.adapters, ", ")},
          {"slo_ttft_ms", absl::StrCat(m.slo_ttft_ms)},
          {"slo_tpot_ms", absl::StrCat(m.slo_tpot_ms)},
          {"chunk_tokens", absl::StrCat(m.chunk_tokens)},
          {"max_batch", absl::StrCat(m.max_batch)},
          {"block_tokens", absl::StrCat(m.block_tokens)},
          {"kv_token_bytes", absl::StrCat(m.kv_token_bytes)},
          {"prompt_tokens", m.counts_prompts ? "exact" : "estimate"},
          {"profile", DescribeProfile(m)},
          {"expected",
           absl::StrCat(m.expected_rate, "/s, ", m.expected_prompt_tokens,
                        " + ", m.expected_output_tokens, " tokens")},
          {"replicas", absl::StrCat(m.replicas)},
          {"fallback", m.fallback},
          {"context", Bytes(m.context_bytes)},
          {"process", Bytes(m.process_bytes)}};
}

SectionDescription DescribeEngine(const FleetEngine& e) {
  SectionDescription d = {{"model", e.model},
                          {"url", absl::StrCat("http://", e.host, ":", e.port)},
                          {"gpu", e.gpu.empty() ? "" : e.CudaGpus()},
                          {"gpu_by", e.gpu_by_index ? "index" : "uuid"},
                          {"command", Words(e.command)},
                          {"view", Yes(e.view)},
                          {"restart_after", absl::StrCat(e.restart_after_s)},
                          {"start", e.is_scaled    ? "scaled"
                                    : e.on_request ? "on_request"
                                                   : "always"},
                          {"stop_after", absl::StrCat(e.stop_after_s)},
                          {"evict", e.may_evict ? "auto" : "never"},
                          {"evict_after", absl::StrCat(e.evict_after_s)},
                          {"planned", Yes(e.is_place)},
                          {"target_rate", absl::StrCat(e.target_rate)},
                          {"floor", Bytes(e.floor_bytes)},
                          {"cap", Bytes(e.cap_bytes)}};
  for (const auto& [variable, value] : e.environment) {
    Digest digest;
    digest.Add(value);
    d[kVariable + variable] = absl::StrCat("set (", digest.text(), ")");
  }
  return d;
}

// Returns the keys that differ between two sections of one name; a missing key
// counts as empty.
std::vector<KeyChange> ChangedKeys(const SectionDescription& before,
                                   const SectionDescription& after) {
  std::set<std::string> keys;
  for (const auto& [key, value] : before) keys.insert(key);
  for (const auto& [key, value] : after) keys.insert(key);
  const auto value_of = [](const SectionDescription& s, const std::string& k) {
    const auto found = s.find(k);
    return found == s.end() ? std::string() : found->second;
  };
  std::vector<KeyChange> changes;
  for (const std::string& key : keys) {
    KeyChange change = {key, value_of(before, key), value_of(after, key)};
    if (change.before != change.after) changes.push_back(std::move(change));
  }
  return changes;
}

}  // namespace

FleetDescription Describe(const Fleet& fleet) {
  FleetDescription d = {
      {"proxy", DescribeProxy(fleet.proxy)},
      {"scheduler",
       {{"policy", fleet.policy}, {"eviction", fleet.eviction_policy}}},
      {"overload",
       {{"drop", fleet.overload.may_drop ? "auto" : "never"},
        {"link_gb_s", absl::StrCat(fleet.overload.link_gb_s)},
        {"rereads", absl::StrCat(fleet.overload.rereads)}}}};
  if (fleet.planner.on) d["planner"] = DescribePlanner(fleet.planner);
  if (!fleet.cluster.machines.empty()) {
    d["cluster"] = DescribeCluster(fleet.cluster);
  }
  for (const FleetModel& m : fleet.models) {
    d[absl::StrCat("model ", m.name)] = DescribeModel(m);
  }
  for (const OutsideModel& o : fleet.outside) {
    d[absl::StrCat("outside ", o.name)] = {
        {"url", absl::StrCat(o.tls ? "https://" : "http://", o.host, ":",
                             o.port, o.path)},
        {"model", o.model},
        {"key", o.key_path}};
  }
  for (const FleetEngine& e : fleet.engines) {
    d[absl::StrCat(kEngine, e.name)] = DescribeEngine(e);
  }
  return d;
}

std::string DigestOf(const FleetDescription& description) {
  Digest digest;
  for (const auto& [name, section] : description) {
    digest.Add(name);
    digest.Add(absl::StrCat(section.size()));
    for (const auto& [key, value] : section) {
      digest.Add(key);
      digest.Add(value);
    }
  }
  return digest.text();
}

std::string SectionChange::Engine() const {
  absl::string_view name = section;
  return absl::ConsumePrefix(&name, kEngine) ? std::string(name) : "";
}

std::vector<SectionChange> Differences(const FleetDescription& before,
                                       const FleetDescription& after) {
  using Kind = SectionChange::Kind;
  std::vector<SectionChange> changes;
  for (const auto& [name, section] : after) {
    const auto was = before.find(name);
    if (was == before.end()) {
      changes.push_back({name, Kind::kAdded});
    } else if (was->second != section) {
      changes.push_back(
          {name, Kind::kChanged, ChangedKeys(was->second, section)});
    }
  }
  for (const auto& [name, section] : before) {
    if (after.count(name) == 0) changes.push_back({name, Kind::kRemoved});
  }
  std::sort(changes.begin(), changes.end(),
            [](const SectionChange& a, const SectionChange& b) {
              return a.section < b.section;
            });
  return changes;
}

bool NeedsRestart(const SectionChange& change) {
  if (change.Engine().empty() || change.kind != SectionChange::Kind::kChanged) {
    return false;
  }
  constexpr absl::string_view kStart[] = {"command", "gpu",     "gpu_by",
                                          "url",     "planned", "view"};
  return std::any_of(
      change.keys.begin(), change.keys.end(), [&](const KeyChange& key) {
        return absl::StartsWith(key.key, kVariable) ||
               std::find(std::begin(kStart), std::end(kStart), key.key) !=
                   std::end(kStart);
      });
}

const SectionDescription* EngineIn(const FleetDescription& description,
                                   const std::string& name) {
  const auto found = description.find(kEngine + name);
  return found == description.end() ? nullptr : &found->second;
}

}  // namespace fineserve::config

#include "daemon/fleet/config/config.h"

#include <fnmatch.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/messages.h"
#include "daemon/fleet/config/toml_keys.h"

namespace fineserve::config {
namespace {

// A setter for a text that `parse` understands.
template <typename T>
Setter Parsed(absl::Status (*parse)(const std::string&, T*), T* out,
              const char* what = "a size in quotes, like \"16GiB\"") {
  return [parse, out, what](const toml::node& node) {
    const auto value = node.value<std::string>();
    if (!node.is_string() || !value.has_value()) return WrongType(what);
    return parse(*value, out);
  };
}

Setter ByteSizes(std::vector<uint64_t>* out) {
  return [out](const toml::node& node) {
    const toml::array* array = node.as_array();
    if (array == nullptr || array->size() > abi::kDeclaredSizeCapacity) {
      return WrongType(absl::StrCat("a list of at most ",
                                    abi::kDeclaredSizeCapacity,
                                    " sizes, like [\"512MiB\"]"));
    }
    for (const toml::node& element : *array) {
      uint64_t bytes = 0;
      absl::Status s = ByteSize(&bytes)(element);
      if (!s.ok()) return s;
      out->push_back(bytes);
    }
    return absl::OkStatus();
  };
}

Setter ShippedRules(std::vector<std::string>* out) {
  return [out](const toml::node& node) {
    out->clear();  // the given values replace the defaults
    return List("a list of names", [out](const toml::node& one) {
      out->emplace_back();
      return OneOf(&out->back(), ShippedRuleNames())(one);
    })(node);
  };
}

Setter EngineRules(const std::string& path, std::vector<EngineRule>* out) {
  return Sections("engine", [path, out](const toml::node& node) {
    EngineRule rule;
    absl::Status s = Section(path, {{"name", Text(&rule.name)},
                                    {"kv_sizes", ByteSizes(&rule.kv_sizes)},
                                    {"floor", ByteSize(&rule.floor_bytes)},
                                    {"cap", ByteSize(&rule.cap_bytes)}})(node);
    if (!s.ok()) return s;
    if (rule.name.empty()) {
      return At(path, node.source(),
                "an [[engine]] needs a name, like name = \"vllm-*\"");
    }
    if (s = CheckShare(rule.floor_bytes, rule.cap_bytes); !s.ok()) {
      return At(path, node.source(), s.message());
    }
    out->push_back(std::move(rule));
    return absl::OkStatus();
  });
}

Setter FrameRules(const std::string& path, std::vector<FrameRule>* out) {
  return Sections("rule", [path, out](const toml::node& node) {
    RuleText text;
    absl::Status s = Section(path, {{"name", Text(&text.name)},
                                    {"engine", Text(&text.engine)},
                                    {"frames", Texts(&text.frames)},
                                    {"module", Text(&text.module)},
                                    {"min_bytes", ByteSize(&text.min_bytes)},
                                    {"max_bytes", ByteSize(&text.max_bytes)},
                                    {"kv", Flag(&text.kv)}})(node);
    if (!s.ok()) return s;
    absl::StatusOr<FrameRule> rule = MakeFrameRule(text);
    if (!rule.ok()) {
      return At(path, node.source(),
                absl::StrCat("[[rule]] \"", text.name,
                             "\": ", rule.status().message()));
    }
    out->push_back(*std::move(rule));
    return absl::OkStatus();
  });
}

absl::Status CheckRuleCount(const std::string& path, const Config& c) {
  const size_t count = c.rules.size() + c.shipped_rules.size();
  if (count <= abi::kRuleCapacity) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", c.rules.size(), " [[rule]] and ", c.shipped_rules.size(),
      " shipped_rules; at most ", abi::kRuleCapacity, " together"));
}

bool IsMatch(const std::string& glob, const std::string& name) {
  return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

}  // namespace

std::vector<std::string> LogLevels() {
  return {"trace", "debug", "info", "warn", "error"};
}

absl::StatusOr<Config> ReadConfig(const std::string& path) {
  Config c;
  absl::Status s = ReadToml(
      path,
      {{"gpu", Text(&c.gpu)},
       {"runtime_dir", Text(&c.runtime_dir)},
       {"log_level", OneOf(&c.log_level, LogLevels())},
       {"metrics", Parsed(SetListenAddress, &c.metrics,
                          "an address in quotes, like \"127.0.0.1:9470\"")},
       {"fleet", Text(&c.fleet_path)},
       {"pool", Section(path, {{"size", Parsed(SetPoolSize, &c.pool)},
                               {"reserve", Parsed(SetReserve, &c.reserve)},
                               {"headroom", Parsed(SetHeadroom, &c.headroom)},
                               {"max", ByteSize(&c.max_pool_bytes)},
                               {"planes", Count(&c.planes, 1, 1024)},
                               {"slab", ByteSize(&c.slab_bytes)}})},
       {"store", Section(path, {{"size", Parsed(SetPoolSize, &c.store)}})},
       {"engine", EngineRules(path, &c.engines)},
       {"shipped_rules", ShippedRules(&c.shipped_rules)},
       {"rule", FrameRules(path, &c.rules)}});
  if (s.ok()) s = CheckRuleCount(path, c);
  if (!s.ok()) return s;
  return c;
}

EngineRule RuleOf(const Config& config, const std::string& engine_name) {
  EngineRule rule;
  for (const EngineRule& r : config.engines) {
    if (!IsMatch(r.name, engine_name)) continue;
    rule = r;
    break;
  }
  const FleetEngine* const engine =
      config.fleet ? config.fleet->Engine(engine_name) : nullptr;
  if (engine != nullptr && rule.floor_bytes == 0 && rule.cap_bytes == 0) {
    rule.floor_bytes = engine->floor_bytes;
    rule.cap_bytes = engine->cap_bytes;
  }
  return rule;
}

std::vector<abi::Rule> RulesFor(const Config& config,
                                const std::string& engine_name) {
  std::vector<abi::Rule> rules;
  for (const FrameRule& rule : config.rules) {
    if (IsMatch(rule.engine, engine_name)) rules.push_back(rule.rule);
  }
  for (const std::string& name : config.shipped_rules) {
    rules.push_back(ShippedRule(name).rule);
  }
  return rules;
}

}  // namespace fineserve::config

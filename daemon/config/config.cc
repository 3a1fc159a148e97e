#include "daemon/config/config.h"

#include <fnmatch.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>

// A file is a user's word. toml++ 3.3 asserts some of what malformed input can
// break (a control character where a key begins); without the assertion its
// parser reports the error with its line.
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/abi/byte_size.h"
#include "daemon/abi/messages.h"

namespace fineserve::config {
namespace {

// Reads the value of one key; errors come without their place.
using Setter = std::function<absl::Status(const toml::node&)>;
using Setters = std::map<std::string, Setter>;

absl::Status WrongType(absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("must be ", wanted));
}

Setter Text(std::string* out) {
  return [out](const toml::node& node) {
    const auto value = node.value<std::string>();
    if (!value.has_value() || !node.is_string()) {
      return WrongType("a string in quotes");
    }
    *out = *value;
    return absl::OkStatus();
  };
}

Setter OneOf(std::string* out, std::vector<std::string> choices) {
  return [out, choices = std::move(choices)](const toml::node& node) {
    const auto value = node.value<std::string>();
    if (!node.is_string() ||
        std::find(choices.begin(), choices.end(), *value) == choices.end()) {
      return WrongType(absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
    }
    *out = *value;
    return absl::OkStatus();
  };
}

Setter ByteSize(uint64_t* out) {
  return [out](const toml::node& node) {
    const auto value = node.value<std::string>();
    if (!node.is_string() || !value.has_value()) {
      return WrongType("a size in quotes, like \"16GiB\"");
    }
    return SetByteSize(*value, out);
  };
}

Setter Flag(bool* out) {
  return [out](const toml::node& node) {
    const auto value = node.value<bool>();
    if (!node.is_boolean()) return WrongType("true or false");
    *out = *value;
    return absl::OkStatus();
  };
}

Setter Count(uint32_t* out, uint32_t least, uint32_t most) {
  return [=](const toml::node& node) {
    const auto value = node.value<int64_t>();
    if (!node.is_integer() || *value < least || *value > most) {
      return WrongType(absl::StrCat("a number from ", least, " to ", most));
    }
    *out = static_cast<uint32_t>(*value);
    return absl::OkStatus();
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

// A list whose elements `element` reads; `what` says how to write it.
Setter List(const char* what,
            std::function<absl::Status(const toml::node&)> element) {
  return [what, element = std::move(element)](const toml::node& node) {
    const toml::array* array = node.as_array();
    if (array == nullptr) return WrongType(what);
    for (const toml::node& one : *array) {
      absl::Status s = element(one);
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  };
}

Setter Texts(std::vector<std::string>* out) {
  return List("a list of strings, like [\"a::b\"]",
              [out](const toml::node& node) {
                out->emplace_back();
                return Text(&out->back())(node);
              });
}

Setter ShippedRules(std::vector<std::string>* out) {
  return [out](const toml::node& node) {
    out->clear();  // they replace the defaults
    return List("a list of names", [out](const toml::node& one) {
      out->emplace_back();
      return OneOf(&out->back(), ShippedRuleNames())(one);
    })(node);
  };
}

absl::Status At(const std::string& path, const toml::source_region& source,
                absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ":", source.begin.line, ": ", what));
}

absl::Status Apply(const std::string& path, const toml::table& table,
                   const Setters& setters) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto setter = setters.find(name);
    if (setter == setters.end()) {
      std::vector<std::string> known;
      for (const auto& [k, unused] : setters) known.push_back(k);
      return At(path, key.source(),
                absl::StrCat("unknown key \"", name,
                             "\"; known here: ", absl::StrJoin(known, ", ")));
    }
    absl::Status s = setter->second(node);
    // What came up from below has its place already.
    if (!s.ok() && absl::StrContains(s.message(), path)) return s;
    if (!s.ok()) {
      return At(path, node.source(), absl::StrCat(name, ": ", s.message()));
    }
  }
  return absl::OkStatus();
}

Setter Section(const std::string& path, Setters setters) {
  return [path, setters = std::move(setters)](const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr) return WrongType("a section");
    return Apply(path, *table, setters);
  };
}

Setter EngineRules(const std::string& path, std::vector<EngineRule>* out) {
  return [path, out](const toml::node& node) {
    const toml::array* array = node.as_array();
    if (array == nullptr) return WrongType("written as [[engine]]");
    for (const toml::node& element : *array) {
      EngineRule rule;
      absl::Status s =
          Section(path, {{"name", Text(&rule.name)},
                         {"kv_sizes", ByteSizes(&rule.kv_sizes)},
                         {"floor", ByteSize(&rule.floor_bytes)},
                         {"cap", ByteSize(&rule.cap_bytes)}})(element);
      if (!s.ok()) return s;
      if (rule.name.empty()) {
        return At(path, element.source(),
                  "an [[engine]] needs a name, like name = \"vllm-*\"");
      }
      if (rule.cap_bytes != 0 && rule.cap_bytes < rule.floor_bytes) {
        return At(path, element.source(),
                  absl::StrCat("cap ", abi::SizeText(rule.cap_bytes),
                               " is less than floor ",
                               abi::SizeText(rule.floor_bytes)));
      }
      out->push_back(std::move(rule));
    }
    return absl::OkStatus();
  };
}

Setter FrameRules(const std::string& path, std::vector<FrameRule>* out) {
  return [path, out](const toml::node& node) {
    const toml::array* array = node.as_array();
    if (array == nullptr) return WrongType("written as [[rule]]");
    for (const toml::node& element : *array) {
      RuleText text;
      absl::Status s = Section(path, {{"name", Text(&text.name)},
                                      {"engine", Text(&text.engine)},
                                      {"frames", Texts(&text.frames)},
                                      {"module", Text(&text.module)},
                                      {"min_bytes", ByteSize(&text.min_bytes)},
                                      {"max_bytes", ByteSize(&text.max_bytes)},
                                      {"kv", Flag(&text.kv)}})(element);
      if (!s.ok()) return s;
      absl::StatusOr<FrameRule> rule = MakeFrameRule(text);
      if (!rule.ok()) {
        return At(path, element.source(),
                  absl::StrCat("[[rule]] \"", text.name,
                               "\": ", rule.status().message()));
      }
      out->push_back(*std::move(rule));
    }
    return absl::OkStatus();
  };
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

absl::Status SetByteSize(const std::string& text, uint64_t* bytes) {
  if (!abi::ParseByteSize(text.c_str(), bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bad size \"", text, "\"; write a number and a unit, like 512MiB"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Config> ReadConfig(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat(path, ": cannot be read: ", strerror(errno)));
  }
  const toml::parse_result parsed = toml::parse_file(path);
  if (!parsed) {
    return At(path, parsed.error().source(),
              std::string(parsed.error().description()));
  }
  Config c;
  absl::Status s =
      Apply(path, parsed.table(),
            {{"gpu", Text(&c.gpu)},
             {"runtime_dir", Text(&c.runtime_dir)},
             {"log_level", OneOf(&c.log_level, LogLevels())},
             {"pool", Section(path, {{"size", ByteSize(&c.pool_bytes)},
                                     {"max", ByteSize(&c.max_pool_bytes)},
                                     {"planes", Count(&c.planes, 1, 1024)},
                                     {"slab", ByteSize(&c.slab_bytes)}})},
             {"engine", EngineRules(path, &c.engines)},
             {"shipped_rules", ShippedRules(&c.shipped_rules)},
             {"rule", FrameRules(path, &c.rules)}});
  if (s.ok()) s = CheckRuleCount(path, c);
  if (!s.ok()) return s;
  return c;
}

EngineRule RuleOf(const Config& config, const std::string& engine_name) {
  for (const EngineRule& rule : config.engines) {
    if (IsMatch(rule.name, engine_name)) return rule;
  }
  return {};
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

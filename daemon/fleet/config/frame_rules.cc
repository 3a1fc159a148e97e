#include "daemon/fleet/config/frame_rules.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/contract/abi/rule.h"

namespace fineserve::config {
namespace {

absl::Status Bad(const std::string& function, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("bad function \"", function, "\": ", why,
                   "; write it like \"llama_kv_cache::llama_kv_cache\""));
}

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
         c == '$' || c == '*';
}

bool IsComponent(absl::string_view text) {
  // A run of '*' is refused, because it would only slow matching down.
  return !text.empty() && !absl::ascii_isdigit(text[0]) && text != "*" &&
         !absl::StrContains(text, "**") &&
         std::all_of(text.begin(), text.end(), IsNameCharacter);
}

// Returns <length><identifier>, or the bare text if it contains a '*', which
// makes the length unknown.
std::string SourceName(absl::string_view component) {
  if (absl::StrContains(component, '*')) return std::string(component);
  return absl::StrCat(component.size(), component);
}

// Returns the last component of two or more. It may be a constructor or a
// destructor of the component before it.
std::string LastName(absl::string_view before, absl::string_view last) {
  if (last == before) return "C";
  if (last == absl::StrCat("~", before)) return "D";
  return SourceName(last);
}

bool AllComponents(const std::vector<absl::string_view>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i > 0 && i + 1 == parts.size();
    if (last && parts[i] == absl::StrCat("~", parts[i - 1])) continue;
    if (!IsComponent(parts[i])) return false;
  }
  return true;
}

std::string Nested(const std::vector<absl::string_view>& parts) {
  std::string name;
  for (size_t i = 0; i + 1 < parts.size(); ++i) name += SourceName(parts[i]);
  return absl::StrCat("_Z*", name,
                      LastName(parts[parts.size() - 2], parts.back()), "*");
}

std::string Translate(const std::vector<absl::string_view>& parts) {
  if (parts.size() > 1) return Nested(parts);
  return absl::StrCat(parts[0], "|_Z*", SourceName(parts[0]), "*");
}

// The shim never examines smaller allocations (its kLargeBytes).
constexpr uint64_t kLeastBytes = 2 << 20;

const std::vector<RuleText>& Shipped() {
  static const auto& rules = *new std::vector<RuleText>{
      {"llama.cpp",
       "*",
       {"ggml_backend_cuda_buffer_type_alloc_buffer",
        "llama_kv_cache::llama_kv_cache"},
       "",
       kLeastBytes},
      // Until llama.cpp's KV had a class.
      {"llama.cpp-2024",
       "*",
       {"ggml_backend_cuda_buffer_type_alloc_buffer",
        "ggml_backend_alloc_ctx_tensors_from_buft",
        "llama_new_context_with_model"},
       "",
       kLeastBytes},
      {"tensorrt-llm",
       "*",
       {"WindowBlockManager::allocatePools"},
       "",
       kLeastBytes},
      {"vllm-cumem",
       "*",
       {"create_and_map", "my_malloc"},
       "cumem_allocator*.so",
       kLeastBytes},
  };
  return rules;
}

absl::Status CopyName(const char* key, const std::string& from, char* to,
                      size_t capacity) {
  if (from.size() >= capacity) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " is longer than ", capacity - 1, " characters"));
  }
  memcpy(to, from.data(), from.size());
  return absl::OkStatus();
}

absl::Status CheckText(const RuleText& text) {
  if (text.name.empty()) {
    return absl::InvalidArgumentError(
        "a [[rule]] needs a name, like name = \"my engine's KV\"");
  }
  if (text.frames.empty() && text.module.empty()) {
    return absl::InvalidArgumentError(
        "a [[rule]] needs frames or a module, like frames = [\"a::b\"]");
  }
  if (text.frames.size() > abi::kRuleFrameCapacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", abi::kRuleFrameCapacity, " frames"));
  }
  if (text.min_bytes > text.max_bytes) {
    return absl::InvalidArgumentError("min_bytes is above max_bytes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> SymbolPattern(const std::string& function) {
  const std::vector<absl::string_view> parts = absl::StrSplit(function, "::");
  if (!AllComponents(parts)) {
    return Bad(function, "only names, '::', '~' and '*' are understood");
  }
  const bool mangled = absl::StartsWith(function, "_Z");
  std::string pattern = mangled ? function : Translate(parts);
  if (pattern.size() >= abi::kPatternBytes) {
    return Bad(function, absl::StrCat("longer than ", abi::kPatternBytes - 1,
                                      " characters when mangled"));
  }
  return pattern;
}

absl::StatusOr<FrameRule> MakeFrameRule(const RuleText& text) {
  absl::Status s = CheckText(text);
  FrameRule made;
  made.engine = text.engine;
  abi::Rule& rule = made.rule;
  s.Update(CopyName("name", text.name, rule.name, sizeof(rule.name)));
  s.Update(CopyName("module", text.module, rule.module, sizeof(rule.module)));
  if (!s.ok()) return s;
  rule.min_bytes = text.min_bytes;
  rule.max_bytes = text.max_bytes;
  rule.kv = text.kv ? 1 : 0;
  for (const std::string& frame : text.frames) {
    const absl::StatusOr<std::string> pattern = SymbolPattern(frame);
    if (!pattern.ok()) return pattern.status();
    // SymbolPattern has kept the text within the capacity.
    memcpy(rule.frames[rule.frame_count++], pattern->data(), pattern->size());
  }
  return made;
}

std::vector<std::string> ShippedRuleNames() {
  std::vector<std::string> names;
  for (const RuleText& text : Shipped()) names.push_back(text.name);
  return names;
}

std::vector<std::string> DefaultShippedRules() {
  return {"llama.cpp", "llama.cpp-2024", "tensorrt-llm"};
}

FrameRule ShippedRule(const std::string& name) {
  for (const RuleText& text : Shipped()) {
    if (text.name == name) return MakeFrameRule(text).value();
  }
  abort();  // the caller checked the name
}

}  // namespace fineserve::config

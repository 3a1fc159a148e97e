#include "daemon/config/frame_rules.h"

#include <stdlib.h>
#include <string.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/config/frame_pattern.h"

namespace fineserve::config {
namespace {

// Smaller allocations are never looked at (kLargeBytes in the shim).
constexpr uint64_t kLeastBytes = 2 << 20;

const std::vector<RuleText>& Shipped() {
  static const auto& rules = *new std::vector<RuleText>{
      {"llama.cpp",
       "*",
       {"ggml_backend_cuda_buffer_type_alloc_buffer",
        "llama_kv_cache::llama_kv_cache"},
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
    // SymbolPattern keeps to the capacity.
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
  return {"llama.cpp", "tensorrt-llm"};
}

FrameRule ShippedRule(const std::string& name) {
  for (const RuleText& text : Shipped()) {
    if (text.name == name) return MakeFrameRule(text).value();
  }
  abort();  // the caller checked the name
}

}  // namespace fineserve::config

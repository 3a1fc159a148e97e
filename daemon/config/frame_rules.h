#ifndef DAEMON_CONFIG_FRAME_RULES_H_
#define DAEMON_CONFIG_FRAME_RULES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/abi/rule.h"

namespace fineserve::config {

// A rule as the configuration gives it, with the engines it is for.
struct FrameRule {
  std::string engine = "*";  // glob over the engine's name
  abi::Rule rule = {};
};

// A [[rule]] before it is checked and translated.
struct RuleText {
  std::string name;
  std::string engine = "*";
  std::vector<std::string> frames;
  std::string module;
  uint64_t min_bytes = 0;
  uint64_t max_bytes = UINT64_MAX;
  bool kv = true;
};

// InvalidArgument with the fix: no name, neither frames nor module, too many
// or too long, an empty range of sizes.
absl::StatusOr<FrameRule> MakeFrameRule(const RuleText& text);

// Rules that come with FineServe, by name. Sources of the function names:
//
//   llama.cpp     src/llama-kv-cache.cpp, ggml/src/ggml-cuda/ggml-cuda.cu
//   tensorrt-llm  cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp
//   vllm-cumem    csrc/cumem_allocator.cpp. Off by default, because sleep mode
//                 allocates weights with it too, and native frames cannot
//                 tell them from KV. Switch it on for engines that allocate
//                 their weights in another way.
std::vector<std::string> ShippedRuleNames();
std::vector<std::string> DefaultShippedRules();
// `name` is one of ShippedRuleNames().
FrameRule ShippedRule(const std::string& name);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_FRAME_RULES_H_

#ifndef DAEMON_FLEET_CONFIG_FRAME_RULES_H_
#define DAEMON_FLEET_CONFIG_FRAME_RULES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/contract/abi/rule.h"

namespace fineserve::config {

// Turns the name of a function, as a user writes it in a rule, into a symbol
// pattern (daemon/contract/abi/rule.h): names are compared mangled, because
// demangling allocates and the shim must not.
//
//   foo                    the C function foo, or a C++ function of that name
//                          in whatever namespace
//   a::b                   the function (or class) b of a; more of them before
//                          and behind: "a::b" also finds x::a::b(int)
//   a::a, a::~a            constructors, destructor
//   al*::b                 '*' in a component: any characters
//   _ZN...                 beginning with _Z: mangled already, '*' allowed
//
// Itanium C++ ABI, §5.1.3: a nested name is a sequence of <length><identifier>,
// a constructor C1 C2 or C3, a destructor D0 D1 or D2. A component with a '*'
// is searched without its length.
//
// InvalidArgument, with the fix, for anything else (arguments, templates'
// angle brackets, blanks) and for what is too long for abi::kPatternBytes.
absl::StatusOr<std::string> SymbolPattern(const std::string& function);

// A rule from the configuration, with the engines to which it applies.
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

// Checks and translates a [[rule]]. InvalidArgument with the fix: no name,
// neither frames nor module, too many or too long, an empty range of sizes.
absl::StatusOr<FrameRule> MakeFrameRule(const RuleText& text);

// Rules that come with FineServe, by name. Sources of the function names:
//
//   llama.cpp       src/llama-kv-cache.cpp, ggml/src/ggml-cuda/ggml-cuda.cu
//   llama.cpp-2024  a library of August 2024, whose KV has no class: the
//                   function that makes a context allocates it as tensors
//   tensorrt-llm    cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp
//   vllm-cumem      csrc/cumem_allocator.cpp. Off by default, because sleep
//                   mode allocates weights with it too, and native frames
//                   cannot tell them from KV. Switch it on for engines that
//                   allocate their weights in another way.
std::vector<std::string> ShippedRuleNames();
std::vector<std::string> DefaultShippedRules();
// Returns the shipped rule called `name`, one of ShippedRuleNames().
FrameRule ShippedRule(const std::string& name);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_FRAME_RULES_H_

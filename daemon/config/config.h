#ifndef DAEMON_CONFIG_CONFIG_H_
#define DAEMON_CONFIG_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/abi/rule.h"
#include "daemon/config/fleet.h"
#include "daemon/config/frame_rules.h"
#include "daemon/config/size_text.h"

namespace fineserve::config {

// What the operator says of engines: which of their allocations are KV (those
// of exactly these sizes), and what share of the pool a view of theirs gets.
struct EngineRule {
  std::string name;                // glob over the engine's name, e.g. "vllm-*"
  std::vector<uint64_t> kv_sizes;  // bytes
  uint64_t floor_bytes = 0;        // leased to it at all times
  uint64_t cap_bytes = 0;          // never more; 0: no limit
};

// What fineserved can be told, by file and flags. Defaults are the values of an
// empty file. Example of every key:
//
//   gpu = "GPU-8f0c3f1e"        # ordinal, UUID or its prefix, "emulated"
//   runtime_dir = "/run/fineserve"
//   log_level = "info"          # trace debug info warn error
//   fleet = "/etc/fineserve/fleet.toml"   # fleet.h; absent: no admission
//
//   [pool]
//   size = "16GiB"
//   max = "32GiB"               # SIGHUP with another size: up to this
//   planes = 1
//   slab = "32MiB"
//
//   [[engine]]
//   name = "vllm-*"
//   kv_sizes = ["512MiB"]
//   floor = "2GiB"              # of a view: its own at all times
//   cap = "12GiB"               # of a view: never more
//
//   shipped_rules = ["llama.cpp", "tensorrt-llm"]   # frame_rules.h
//
//   [[rule]]                    # the first that matches decides
//   name = "my engine"
//   engine = "my-*"             # glob, all engines if absent
//   frames = ["pool_allocate", "KvCache::KvCache"]  # inner to outer
//   module = "libmine*.so"      # holds the innermost of them
//   min_bytes = "64MiB"
//   max_bytes = "1TiB"
//   kv = true                   # false: what matches is not KV
struct Config {
  std::string gpu = "0";
  std::string runtime_dir;  // empty: the default of abi::RuntimeFolder
  std::string log_level = "info";
  std::string fleet_path;       // empty: requests are no business of ours
  absl::optional<Fleet> fleet;  // what lies there (server/options.h reads it)
  uint64_t pool_bytes = 0;      // required, by file or flag
  uint64_t max_pool_bytes = 0;  // 0: pool_bytes; the pool may grow to it
  uint32_t planes = 1;
  uint64_t slab_bytes = 0;  // 0: chosen
  std::vector<EngineRule> engines;
  // With the shipped ones ≤ abi::kRuleCapacity.
  std::vector<FrameRule> rules;
  std::vector<std::string> shipped_rules = DefaultShippedRules();
};

// Reads a TOML file. Errors are InvalidArgument with one line
// "FILE:LINE: what is wrong; the fix": bad TOML, an unknown key, a wrong type,
// a bad size. NotFound if the file cannot be read.
absl::StatusOr<Config> ReadConfig(const std::string& path);

// What log_level may be.
std::vector<std::string> LogLevels();

// The first rule that matches the engine's name, an empty one if none does;
// with the fleet's floor and cap if the rule says neither.
EngineRule RuleOf(const Config& config, const std::string& engine_name);

// The frame rules for an engine of this name, in the order in which they are
// to be tried: the file's own, then the shipped ones.
std::vector<abi::Rule> RulesFor(const Config& config,
                                const std::string& engine_name);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_CONFIG_H_

#ifndef DAEMON_FLEET_CONFIG_CONFIG_H_
#define DAEMON_FLEET_CONFIG_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/contract/abi/rule.h"
#include "daemon/fleet/config/address.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/config/frame_rules.h"
#include "daemon/fleet/config/pool_size.h"
#include "daemon/fleet/config/size_text.h"

namespace fineserve::config {

// The operator's rule for engines: which of their allocations are KV (those of
// exactly these sizes), and what share of the pool their views get.
struct EngineRule {
  std::string name;                // glob over the engine's name, e.g. "vllm-*"
  std::vector<uint64_t> kv_sizes;  // bytes
  uint64_t floor_bytes = 0;        // always leased to it
  uint64_t cap_bytes = 0;          // never more; 0: no limit
};

// The configuration of fineserved, from file and flags. The defaults are the
// values of an empty file. An example with every key:
//
//   gpu = "GPU-8f0c3f1e"        # ordinal, UUID or its prefix, "emulated"
//   runtime_dir = "/run/fineserve"
//   log_level = "info"          # trace debug info warn error
//   metrics = "127.0.0.1:9470"  # Prometheus's; a port alone: this machine only
//   fleet = "/etc/fineserve/fleet.toml"   # fleet.h; absent: no admission
//
//   [pool]
//   size = "16GiB"              # or "auto": what is free less the reserve
//   reserve = "40%"             # or "20GiB"; of "auto", by default a third
//   headroom = "6%"             # or "5GiB": what "auto" leaves free later
//   max = "32GiB"               # SIGHUP with another size: up to this
//   planes = 1
//   slab = "32MiB"
//
//   [store]
//   size = "64GiB"              # or "auto": what the host has left
//
//   [[engine]]
//   name = "vllm-*"
//   kv_sizes = ["512MiB"]
//   floor = "2GiB"              # of a view: always leased to it
//   cap = "12GiB"               # of a view: never more
//
//   # see frame_rules.h
//   shipped_rules = ["llama.cpp", "llama.cpp-2024", "tensorrt-llm"]
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
  ListenAddress metrics;   // off unless given
  std::string fleet_path;  // empty: requests are not admitted here
  absl::optional<Fleet>
      fleet;         // its contents (fineserved/start/options.h reads it)
  PoolSize pool;     // required, by file or flag
  Reserve reserve;   // of a pool of size "auto"
  Reserve headroom;  // the same
  uint64_t max_pool_bytes = 0;  // 0: the pool's, or what an "auto" one can take
  uint32_t planes = 1;
  uint64_t slab_bytes = 0;             // 0: chosen
  PoolSize store = {.is_auto = true};  // host memory for what is evicted
  std::vector<EngineRule> engines;
  // At most abi::kRuleCapacity, including the shipped rules.
  std::vector<FrameRule> rules;
  std::vector<std::string> shipped_rules = DefaultShippedRules();
};

// Reads a TOML file. Errors are InvalidArgument with one line
// "FILE:LINE: what is wrong; the fix": bad TOML, an unknown key, a wrong type,
// a bad size. NotFound if the file cannot be read.
absl::StatusOr<Config> ReadConfig(const std::string& path);

// Returns the values that log_level may have.
std::vector<std::string> LogLevels();

// Returns the first rule that matches the engine's name, or an empty one. If
// the rule gives neither floor nor cap, it gets the fleet's.
EngineRule RuleOf(const Config& config, const std::string& engine_name);

// Returns the frame rules for an engine of this name, in the order in which
// they are tried: the file's own, then the shipped ones.
std::vector<abi::Rule> RulesFor(const Config& config,
                                const std::string& engine_name);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_CONFIG_H_

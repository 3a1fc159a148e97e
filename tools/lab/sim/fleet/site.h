#ifndef TOOLS_LAB_SIM_FLEET_SITE_H_
#define TOOLS_LAB_SIM_FLEET_SITE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/fleet/config/fleet.h"
#include "tools/lab/sim/gpu/setup.h"
#include "tools/lab/sim/lead/setup.h"

namespace fineserve::sim {

// Facts about a model that a simulation needs and that the fleet file does not
// contain.
struct SiteModel {
  uint64_t kv_token_bytes = 0;   // 0: as the fleet file says
  uint32_t planes = 1;           // of its KV tensors
  uint32_t longest_tokens = 0;   // --max-model-len; 0: 8192
  uint32_t tp = 1;               // ranks; the KV is that of one rank
  double exchange_us = 0;        // between ranks: a step
  double exchange_token_us = 0;  // and a token of it
  double prefix_hits = 0;        // part of each prompt, 0 … 1
  // Bytes of prompt text per token, from which the proxy estimates the number
  // of tokens; 0: it knows the number.
  double bytes_per_token = 0;
  uint64_t weight_bytes = 0;  // that leave the GPU with it
  // Real time of the model's steps; none: as in the fleet's profile.
  absl::optional<config::StepProfile> truth;
};

// Times of a process that loads its weights from the host's pageable memory, as
// Prism reports them for engines without its own remedies: tens of seconds to
// start (§5.2), and 7.1 s for the 28 GB of a 14B model in FP16 (Fig. 9).
HandTimes ColdStart();

// Times of engines that leave the GPU for others and come back. If set, they
// apply to all engines of the fleet, whose [[engine]] must say evict = "auto".
struct SiteEviction {
  uint64_t headroom_bytes = 0;           // that the pool leaves free
  uint64_t link_per_s = 25'000'000'000;  // bytes that come back: PCIe 4.0
  Micros leave_us = 0;         // of one whose contents are in the store
  uint64_t scratch_bytes = 0;  // of each view on the GPU
};

// The machine that is simulated: everything that the fleet file does not say.
// Nothing here is a result; `source` tells where the numbers come from and is
// printed with every report. An example with every key:
//
//   source = "tinyserve at real speed on the emulated device"
//   [gpu]
//   memory = "80GiB"                # of the device; for a planner
//   pool = "16GiB"
//   slab = "32MiB"
//   planes = 1
//   fill_us = 20                    # to zero one slab
//   poll_us = 10000                 # how often a restless pool is looked at
//   slowdown = [ 1.0, 1.9 ]         # by engines that work; [] time slices
//   [path]
//   ask_us = 300                    # from the client to the daemon
//   send_us = 200                   # from the verdict to the engine
//   answer_us = 200                 # from a token to the client
//   [engine]                        # that a planner starts and stops
//   start_s = 30                    # until it serves, but for its weights
//   weights_per_s = 4e9             # bytes of them that come to the GPU
//   stop_s = 0                      # until its memory is free
//   back_per_s = 25e9               # bytes of weights of one that was evicted
//   [eviction]                      # the pool has what weights leave of memory
//   headroom = "2GiB"               # free, for what no pool knows
//   scratch = "64MiB"               # of each view on the GPU, beside the pool
//   link_per_s = 25e9               # bytes of weights that come back
//   leave_us = 20000                # without a copy: the store has one
//   [[model]]
//   name = "llama-8b-fp16"          # of the fleet
//   kv_token_bytes = 131072
//   planes = 1
//   longest = 8192
//   tp = 1
//   exchange_us = 0
//   exchange_token_us = 0
//   prefix_hits = 0.0
//   bytes_per_token = 4.5           # of prompts' text; 0: tokens are known
//   weights = "15GiB"               # that leave with an engine
//   truth = { base_us = 8000, per_token_us = 110, per_sequence_us = 60 }
struct Site {
  std::string source;
  uint64_t memory_bytes = 0;  // of the device; 0: not given
  uint64_t pool_bytes = uint64_t{16} << 30;
  uint64_t slab_bytes = uint64_t{32} << 20;
  uint32_t planes = 1;
  Slowdown slowdown;
  PoolTimes pool;
  PathTimes path;
  HandTimes hand = ColdStart();
  bool has_hand = false;                  // the file says what `hand` is
  absl::optional<SiteEviction> eviction;  // none: all stay
  std::map<std::string, SiteModel> models;
};

// Returns "; engines start in 30.0 s …": the hand's inputs, for the report of a
// fleet with a planner.
std::string HandSource(const Site& site);

// Reads a TOML file. Returns the same errors as config::ReadFleet.
absl::StatusOr<Site> ReadSite(const std::string& path);

}  // namespace fineserve::sim

#endif  // TOOLS_LAB_SIM_FLEET_SITE_H_

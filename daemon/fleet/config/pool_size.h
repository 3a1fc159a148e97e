#ifndef DAEMON_FLEET_CONFIG_POOL_SIZE_H_
#define DAEMON_FLEET_CONFIG_POOL_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace fineserve::config {

// Size of the pool.
struct PoolSize {
  uint64_t bytes = 0;
  // If true, the size is the GPU's free memory at start, less a reserve, and
  // follows the engines' needs while they serve (slab::AutoSize).
  bool is_auto = false;
};

// Memory that a pool of size "auto" leaves to the engines: at start, for
// weights and activations, in bytes or in percent of what is free (both 0: a
// third); while they serve, in percent of the GPU's memory (both 0: a
// sixteenth). Both are heuristics.
struct Reserve {
  uint64_t bytes = 0;
  uint32_t percent = 0;
};

// Sets `size` from "16GiB" or "auto". InvalidArgument with the fix.
absl::Status SetPoolSize(const std::string& text, PoolSize* size);

// Sets `reserve` from "20GiB" or "40%". InvalidArgument with the fix.
absl::Status SetReserve(const std::string& text, Reserve* reserve);

// Sets `headroom`, which is left free while engines serve, from the same forms.
// InvalidArgument with the fix.
absl::Status SetHeadroom(const std::string& text, Reserve* headroom);

// Returns the bytes of a reserve if `free_bytes` are free; may be more than
// `free_bytes`.
uint64_t ReserveBytes(const Reserve& reserve, uint64_t free_bytes);

// Returns the bytes of a headroom on a GPU of `total_bytes`.
uint64_t HeadroomBytes(const Reserve& headroom, uint64_t total_bytes);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_POOL_SIZE_H_

#ifndef DAEMON_CONFIG_POOL_SIZE_H_
#define DAEMON_CONFIG_POOL_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace fineserve::config {

// How large the pool is at start.
struct PoolSize {
  uint64_t bytes = 0;
  bool is_auto = false;  // what is free on the GPU at start, less a reserve
};

// What a pool of size "auto" leaves to the engines' weights and activations. In
// bytes, or in percent of what is free; both 0: a third of what is free, which
// is a heuristic.
struct Reserve {
  uint64_t bytes = 0;
  uint32_t percent = 0;
};

// Sets `size` from "16GiB" or "auto". InvalidArgument with the fix.
absl::Status SetPoolSize(const std::string& text, PoolSize* size);

// Sets `reserve` from "20GiB" or "40%". InvalidArgument with the fix.
absl::Status SetReserve(const std::string& text, Reserve* reserve);

// The bytes of a reserve where `free_bytes` are free; may be more than that.
uint64_t ReserveBytes(const Reserve& reserve, uint64_t free_bytes);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_POOL_SIZE_H_

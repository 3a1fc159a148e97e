#ifndef DAEMON_CONTRACT_ABI_KV_SHAPE_H_
#define DAEMON_CONTRACT_ABI_KV_SHAPE_H_

// Computes the blocks that an engine's requests take. Layers that keep KV in
// the same way form a group (vLLM's KV cache groups): full attention, attention
// within a window, the state of Mamba layers. A request has separate blocks in
// each group, and all of them come from the engine's one view.

#include <algorithm>
#include <cstdint>

#include "kernels/driver/rounding.h"

namespace fineserve::abi {

// Groups of layers that keep KV in the same way.
struct KvGroups {
  uint32_t count;
  uint32_t block_tokens;
  uint32_t window_tokens;  // that a token attends to, with itself; 0: all
};

inline constexpr int kKvGroupKinds = 4;
// Limit that keeps counts of blocks from overflowing.
inline constexpr uint32_t kMostKvGroups = 4096;

// All zero if unknown: a request then takes one block for every block_tokens of
// its view's format.
struct KvShape {
  KvGroups groups[kKvGroupKinds];
  uint32_t states;  // blocks of a request that hold no tokens
  // Most tokens of one request in flight: while its prompt is processed, and
  // after that. The tokens that they attend to are kept until the steps in
  // flight have ended.
  uint32_t filling_tokens;
  uint32_t answering_tokens;
  uint32_t reserved;
};
static_assert(sizeof(KvShape) == 64);

constexpr bool IsKnown(const KvShape& shape) {
  return shape.groups[0].count > 0 || shape.states > 0;
}

constexpr bool IsValid(const KvShape& shape) {
  for (const KvGroups& g : shape.groups) {
    if (g.count > kMostKvGroups || (g.count > 0 && g.block_tokens == 0)) {
      return false;
    }
  }
  return shape.states <= kMostKvGroups;
}

// Returns the most blocks that a request of `tokens` takes at a time, while
// `in_flight` of these tokens are in flight, by the rules of vLLM's block
// managers: a window may begin anywhere in a block.
constexpr uint64_t BlocksOf(const KvShape& shape, uint64_t tokens,
                            uint64_t in_flight) {
  uint64_t blocks = shape.states;
  for (const KvGroups& g : shape.groups) {
    if (g.count == 0) continue;
    uint64_t its = DivideUp(tokens, g.block_tokens);
    if (g.window_tokens > 0) {
      const uint64_t kept = g.window_tokens - 1 + in_flight;
      its = std::min(its, DivideUp(kept, g.block_tokens) + 1);
    }
    blocks += g.count * its;
  }
  return blocks;
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_KV_SHAPE_H_

#ifndef DAEMON_POOL_GEOMETRY_FORMAT_H_
#define DAEMON_POOL_GEOMETRY_FORMAT_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace fineserve::slab {

// How a slab is cut for one model (the paper's slab key, §5.2). A block
// consists of `planes` pages, one in each plane at the same offset. Plain
// value.
struct Format {
  uint32_t planes = 0;
  uint64_t page_bytes = 0;
  uint32_t block_tokens = 0;

  uint64_t block_bytes() const { return planes * page_bytes; }
  friend bool operator==(const Format& a, const Format& b) {
    return a.planes == b.planes && a.page_bytes == b.page_bytes &&
           a.block_tokens == b.block_tokens;
  }
};

// Layout of an engine's KV tensors.
enum class Layout {
  kPacked,  // block outermost: all layers of a block are together, one plane
  kLayers,  // a tensor per layer
  kSplit,   // a tensor per layer, K and V apart: two planes per layer
};

// A model's KV cache as the paper counts it (§3.2).
struct KvShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t value_bits = 16;  // the precision: 32, 16, 8 or 4
  uint32_t tp_degree = 1;
  uint64_t quant_bytes = 0;  // Quant.Params of one block in one layer
  uint32_t block_tokens = 16;
  Layout layout = Layout::kLayers;
};

// Returns the format for this shape. A block of one layer has KVblocksize bytes
// (§3.2): TokensPerBlock × TokenSize + Quant.Params, TokenSize = heads / TP ×
// HeadDim × 2 × bytes(precision). As in engines, a rank keeps at least one
// head. InvalidArgument, naming the value, if something is zero, if neither of
// TP and heads divides the other, or if a block is not a whole number of bytes
// in each plane.
absl::StatusOr<Format> FormatOf(const KvShape& shape);

}  // namespace fineserve::slab

#endif  // DAEMON_POOL_GEOMETRY_FORMAT_H_

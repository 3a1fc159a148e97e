#include "daemon/pool/geometry/format.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fineserve::slab {
namespace {

// Limit on each value, far above any model's. It keeps all products below 2^63.
constexpr uint64_t kMost = 1 << 16;

absl::Status Check(const char* what, uint64_t value) {
  if (value > 0 && value <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", value, "; it must be 1 to ", kMost));
}

absl::Status CheckShape(const KvShape& s) {
  for (const auto& [what, value] :
       {std::pair<const char*, uint64_t>{"layers", s.layers},
        {"KV heads", s.kv_heads},
        {"head dim", s.head_dim},
        {"TP degree", s.tp_degree},
        {"tokens per block", s.block_tokens}}) {
    if (absl::Status status = Check(what, value); !status.ok()) return status;
  }
  const uint32_t bits = s.value_bits;
  if (bits != 4 && bits != 8 && bits != 16 && bits != 32) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a KV value cannot have ", bits, " bits; use 4, 8, 16 or 32"));
  }
  if (s.quant_bytes > uint64_t{1} << 32) {
    return absl::InvalidArgumentError(absl::StrCat(
        s.quant_bytes, " quantisation bytes per block and layer are too many"));
  }
  if (s.kv_heads % s.tp_degree != 0 && s.tp_degree % s.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        s.kv_heads, " KV heads cannot be shared by TP degree ", s.tp_degree));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Format> FormatOf(const KvShape& s) {
  if (absl::Status status = CheckShape(s); !status.ok()) return status;
  const uint64_t heads = std::max(s.kv_heads / s.tp_degree, 1u);
  const uint64_t values = uint64_t{s.block_tokens} * heads * s.head_dim * 2;
  const uint64_t layer_bits = values * s.value_bits + s.quant_bytes * 8;
  const uint32_t planes_per_layer = s.layout == Layout::kSplit ? 2 : 1;
  if (layer_bits % (8 * planes_per_layer) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a block has ", layer_bits,
                     " bits per layer, which is not a whole "
                     "number of bytes in each of ",
                     planes_per_layer, " planes"));
  }
  const uint64_t page_bytes = layer_bits / 8 / planes_per_layer;
  if (s.layout == Layout::kPacked) {
    return Format{1, page_bytes * s.layers, s.block_tokens};
  }
  return Format{s.layers * planes_per_layer, page_bytes, s.block_tokens};
}

}  // namespace fineserve::slab

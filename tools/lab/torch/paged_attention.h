#ifndef TOOLS_LAB_TORCH_PAGED_ATTENTION_H_
#define TOOLS_LAB_TORCH_PAGED_ATTENTION_H_

#include <ATen/ATen.h>

#include <cstdint>

namespace fineserve::host_device {

// Attention over vLLM's paged KV cache, on the host. Shapes: T tokens, Hq query
// heads, H KV heads, D elements per head, N tokens per block. `kv_cache` is
// [blocks, H, N, 2 D] with any strides, keys before values; one-byte elements
// are FP8, and are multiplied by `k_scale` or `v_scale`.

// Writes each token's key and value [T, H, D] to its slot (block × N + offset);
// a negative slot is padding.
void StoreKv(const at::Tensor& key, const at::Tensor& value,
             at::Tensor& kv_cache, const at::Tensor& slot_mapping,
             const at::Tensor& k_scale, const at::Tensor& v_scale);

// Computes the causal attention of `query` [T, Hq, D]. Request r's queries are
// the rows from query_start[r] to query_start[r + 1]; they belong to the last
// of its seq_lens[r] tokens, whose blocks are row r of `block_table`. A query
// attends to itself and at most `window` tokens before it (to all if `window`
// is negative); blocks wholly before the window are not read.
void PagedAttention(const at::Tensor& query, const at::Tensor& kv_cache,
                    const at::Tensor& block_table, const at::Tensor& seq_lens,
                    const at::Tensor& query_start, const at::Tensor& k_scale,
                    const at::Tensor& v_scale, double scale, int64_t window,
                    at::Tensor& out);

}  // namespace fineserve::host_device

#endif  // TOOLS_LAB_TORCH_PAGED_ATTENTION_H_

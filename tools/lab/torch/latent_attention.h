#ifndef TOOLS_LAB_TORCH_LATENT_ATTENTION_H_
#define TOOLS_LAB_TORCH_LATENT_ATTENTION_H_

#include <ATen/ATen.h>

namespace fineserve::host_device {

// The host's version of vLLM's kernels for latent attention (MLA). A token's
// entry in the cache is a latent vector of R elements, from which the keys and
// values of all heads are computed, and P elements of a key that all heads
// share. Shapes: T tokens, H heads, N tokens per block, D elements per head of
// queries and keys, V of values. `kv_cache` is [blocks, N, R + P] with any
// strides; one-byte elements are FP8, and are multiplied by `scale`.

// Writes each token's latent [T, R] and key [T, P] to its slot (block × N +
// offset); a negative slot is padding.
void StoreLatent(const at::Tensor& latent, const at::Tensor& key,
                 at::Tensor& kv_cache, const at::Tensor& slot_mapping,
                 const at::Tensor& scale);

// Copies the entries of request r's tokens, from token starts[r] on, to the
// rows of `out` from rows[r] to rows[r + 1]. The request's blocks are row r of
// `block_table`.
void GatherLatent(const at::Tensor& kv_cache, const at::Tensor& block_table,
                  const at::Tensor& rows, const at::Tensor& starts,
                  const at::Tensor& scale, at::Tensor& out);

// Computes the attention of one query [R + P] for each request and head to the
// entries of the request's seq_lens[r] tokens; the latents of the entries are
// the values. `query` is [requests, H, R + P], `out` [requests, H, R].
void LatentAttention(const at::Tensor& query, const at::Tensor& kv_cache,
                     const at::Tensor& block_table, const at::Tensor& seq_lens,
                     const at::Tensor& scale, double softmax_scale,
                     at::Tensor& out);

// Computes the attention of requests one after another: request r has the rows
// of `query` [T, H, D] from query_rows[r] to query_rows[r + 1], and the rows of
// `keys` and `values` [.., H, V] from key_rows[r]. If `causal`, query i attends
// to keys 0 to i, else to all. `log_sums` [H, T] gets the logarithm of the sum
// of each query's weights.
void RaggedAttention(const at::Tensor& query, const at::Tensor& keys,
                     const at::Tensor& values, const at::Tensor& query_rows,
                     const at::Tensor& key_rows, double softmax_scale,
                     bool causal, at::Tensor& out, at::Tensor& log_sums);

}  // namespace fineserve::host_device

#endif  // TOOLS_LAB_TORCH_LATENT_ATTENTION_H_

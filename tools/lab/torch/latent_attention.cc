#include "tools/lab/torch/latent_attention.h"

#include <limits>

namespace fineserve::host_device {
namespace {

// Indexing does not support FP8, so it moves bytes.
at::Tensor Movable(const at::Tensor& tensor) {
  return tensor.element_size() == 1 ? tensor.view(at::kByte) : tensor;
}

// Returns [end - first, R + P]: the cache entries of a request whose block
// table is `blocks`.
at::Tensor Entries(const at::Tensor& kv_cache, const at::Tensor& blocks,
                   int64_t first, int64_t end, const at::Tensor& scale) {
  const int64_t block_tokens = kv_cache.size(1);
  const int64_t first_block = first / block_tokens;
  const at::Tensor mine =
      blocks.slice(0, first_block, (end + block_tokens - 1) / block_tokens)
          .to(at::kLong);
  const at::Tensor entries =
      Movable(kv_cache)
          .index_select(0, mine)
          .view(kv_cache.scalar_type())
          .flatten(0, 1)
          .narrow(0, first - first_block * block_tokens, end - first)
          .to(at::kFloat);
  return kv_cache.element_size() == 1 ? entries * scale.to(at::kFloat)
                                      : entries;
}

}  // namespace

void StoreLatent(const at::Tensor& latent, const at::Tensor& key,
                 at::Tensor& kv_cache, const at::Tensor& slot_mapping,
                 const at::Tensor& scale) {
  const at::Tensor slots = slot_mapping.to(at::kLong);
  const at::Tensor rows = (slots >= 0).nonzero().squeeze(1);
  const at::Tensor kept = slots.index_select(0, rows);
  const int64_t block_tokens = kv_cache.size(1);
  at::Tensor entries = at::cat({latent, key}, -1).index_select(0, rows);
  if (kv_cache.element_size() == 1) {
    entries = entries.to(at::kFloat) / scale.to(at::kFloat);
  }
  Movable(kv_cache).index_put_(
      {kept.div(block_tokens, "floor"), kept.remainder(block_tokens)},
      Movable(entries.to(kv_cache.scalar_type())));
}

void GatherLatent(const at::Tensor& kv_cache, const at::Tensor& block_table,
                  const at::Tensor& rows, const at::Tensor& starts,
                  const at::Tensor& scale, at::Tensor& out) {
  for (int64_t r = 0; r < starts.size(0); ++r) {
    const int64_t begin = rows[r].item<int64_t>();
    const int64_t end = rows[r + 1].item<int64_t>();
    if (begin == end) continue;
    const int64_t first = starts[r].item<int64_t>();
    out.slice(0, begin, end)
        .copy_(Entries(kv_cache, block_table[r], first, first + end - begin,
                       scale));
  }
}

void LatentAttention(const at::Tensor& query, const at::Tensor& kv_cache,
                     const at::Tensor& block_table, const at::Tensor& seq_lens,
                     const at::Tensor& scale, double softmax_scale,
                     at::Tensor& out) {
  for (int64_t r = 0; r < seq_lens.size(0); ++r) {
    const int64_t tokens = seq_lens[r].item<int64_t>();
    if (tokens == 0) continue;  // padding
    const at::Tensor entries =
        Entries(kv_cache, block_table[r], 0, tokens, scale);
    const at::Tensor weights = at::softmax(
        at::matmul(query[r].to(at::kFloat), entries.t()) * softmax_scale, -1);
    out[r].copy_(at::matmul(weights, entries.narrow(1, 0, out.size(2))));
  }
}

void RaggedAttention(const at::Tensor& query, const at::Tensor& keys,
                     const at::Tensor& values, const at::Tensor& query_rows,
                     const at::Tensor& key_rows, double softmax_scale,
                     bool causal, at::Tensor& out, at::Tensor& log_sums) {
  const auto mine = [](const at::Tensor& tensor, const at::Tensor& rows,
                       int64_t r) {
    return tensor.slice(0, rows[r].item<int64_t>(), rows[r + 1].item<int64_t>())
        .transpose(0, 1)
        .to(at::kFloat);
  };
  for (int64_t r = 0; r + 1 < query_rows.size(0); ++r) {
    const int64_t begin = query_rows[r].item<int64_t>();
    const int64_t end = query_rows[r + 1].item<int64_t>();
    if (begin == end) continue;
    at::Tensor scores = at::matmul(mine(query, query_rows, r),
                                   mine(keys, key_rows, r).transpose(1, 2)) *
                        softmax_scale;
    if (causal) {
      const at::Tensor later =
          at::ones({scores.size(1), scores.size(2)}, at::kBool).triu(1);
      scores.masked_fill_(later, -std::numeric_limits<float>::infinity());
    }
    out.slice(0, begin, end)
        .copy_(at::matmul(at::softmax(scores, -1), mine(values, key_rows, r))
                   .transpose(0, 1));
    log_sums.slice(1, begin, end).copy_(at::logsumexp(scores, -1));
  }
}

}  // namespace fineserve::host_device

#include "tools/lab/torch/paged_attention.h"

namespace fineserve::host_device {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Indexing does not support FP8, so it moves bytes.
at::Tensor Movable(const at::Tensor& tensor) {
  return tensor.element_size() == 1 ? tensor.view(at::kByte) : tensor;
}

at::Tensor Stored(const at::Tensor& tensor, const at::Tensor& scale,
                  at::ScalarType type) {
  if (type == tensor.scalar_type()) return tensor;
  return (tensor.to(at::kFloat) / scale.to(at::kFloat)).to(type);
}

// Returns [H, end - first, 2 D]: the cached keys and values of a request's
// tokens from `first`, which begins a block, to `end`; `blocks` is the
// request's block table.
at::Tensor Gather(const at::Tensor& kv_cache, const at::Tensor& blocks,
                  int64_t first, int64_t end) {
  const int64_t block_tokens = kv_cache.size(2);
  const at::Tensor mine = blocks
                              .slice(0, first / block_tokens,
                                     (end + block_tokens - 1) / block_tokens)
                              .to(at::kLong);
  const at::Tensor pages =
      Movable(kv_cache).index_select(0, mine).view(kv_cache.scalar_type());
  return pages.permute({1, 0, 2, 3})
      .reshape({kv_cache.size(1), -1, kv_cache.size(3)})
      .narrow(1, 0, end - first)
      .to(at::kFloat);
}

// Computes the attention of queries that belong to the last tokens of `keys`.
at::Tensor Attend(const at::Tensor& query, const at::Tensor& keys,
                  const at::Tensor& values, double scale, int64_t window) {
  const int64_t queries = query.size(1), tokens = keys.size(1);
  at::Tensor scores = at::matmul(query, keys.transpose(1, 2)) * scale;
  if (queries > 1) {
    const at::Tensor later =
        at::ones({queries, tokens}, at::kBool).triu(tokens - queries + 1);
    scores.masked_fill_(later, -kInfinity);
  }
  if (window >= 0) {
    const at::Tensor before = at::ones({queries, tokens}, at::kBool)
                                  .tril(tokens - queries - window - 1);
    scores.masked_fill_(before, -kInfinity);
  }
  return at::matmul(at::softmax(scores, -1), values);
}

}  // namespace

void StoreKv(const at::Tensor& key, const at::Tensor& value,
             at::Tensor& kv_cache, const at::Tensor& slot_mapping,
             const at::Tensor& k_scale, const at::Tensor& v_scale) {
  const at::Tensor slots = slot_mapping.to(at::kLong);
  const at::Tensor rows = (slots >= 0).nonzero().squeeze(1);
  const at::Tensor kept = slots.index_select(0, rows);
  const int64_t block_tokens = kv_cache.size(2);
  const auto type = kv_cache.scalar_type();
  const at::Tensor entries =
      at::cat({Stored(key, k_scale, type), Stored(value, v_scale, type)}, -1);
  Movable(kv_cache).transpose(1, 2).index_put_(
      {kept.div(block_tokens, "floor"), kept.remainder(block_tokens)},
      Movable(entries).index_select(0, rows));
}

void PagedAttention(const at::Tensor& query, const at::Tensor& kv_cache,
                    const at::Tensor& block_table, const at::Tensor& seq_lens,
                    const at::Tensor& query_start, const at::Tensor& k_scale,
                    const at::Tensor& v_scale, double scale, int64_t window,
                    at::Tensor& out) {
  const int64_t heads = query.size(1), head_size = query.size(2);
  const int64_t group = heads / kv_cache.size(1);
  const bool scaled = kv_cache.element_size() == 1;
  at::Tensor rows = out.view({out.size(0), heads, head_size});
  for (int64_t r = 0; r < seq_lens.size(0); ++r) {
    const int64_t first = query_start[r].item<int64_t>();
    const int64_t end = query_start[r + 1].item<int64_t>();
    const int64_t tokens = seq_lens[r].item<int64_t>();
    if (first == end || tokens == 0) continue;  // padding
    const int64_t oldest = tokens - (end - first) - window;
    const int64_t from =
        window < 0 || oldest < 0 ? 0 : oldest - oldest % kv_cache.size(2);
    at::Tensor kv = Gather(kv_cache, block_table[r], from, tokens);
    kv = kv.repeat_interleave(group, 0);
    at::Tensor keys = kv.narrow(2, 0, head_size);
    at::Tensor values = kv.narrow(2, head_size, head_size);
    if (scaled) {
      keys = keys * k_scale.to(at::kFloat);
      values = values * v_scale.to(at::kFloat);
    }
    const at::Tensor mine =
        query.slice(0, first, end).transpose(0, 1).to(at::kFloat);
    rows.slice(0, first, end)
        .copy_(Attend(mine, keys, values, scale, window).transpose(0, 1));
  }
}

}  // namespace fineserve::host_device

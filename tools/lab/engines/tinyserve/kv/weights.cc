#include "tools/lab/engines/tinyserve/kv/weights.h"

#include <stdio.h>

#include "tools/lab/engines/weak_kv.h"

namespace tinyserve {
namespace {

using namespace fineserve::driver;  // NOLINT: this file calls CUDA

constexpr size_t kPieceWords = 512;
constexpr size_t kPieceBytes = kPieceWords * sizeof(uint64_t);
// Step between the pieces of a tensor that are read; reaches every piece in the
// end.
constexpr size_t kStride = 509;

// Returns the word at index `at`, counted over all weights.
uint64_t Word(size_t at) { return (at + 1) * 0x9e3779b97f4a7c15; }

}  // namespace

Weights::Weights(size_t bytes, size_t tensor_bytes)
    : tensor_bytes_(tensor_bytes), piece_(kPieceWords) {
  std::vector<uint64_t> words(tensor_bytes / sizeof(uint64_t));
  for (size_t t = 0; t < bytes / tensor_bytes; ++t) {
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = Word(t * words.size() + i);
    }
    CUdeviceptr tensor = 0;
    STOCK_ENGINE_CALL(cuMemAlloc_v2, &tensor, tensor_bytes);
    STOCK_ENGINE_CALL(cuMemcpyHtoD_v2, tensor, words.data(), tensor_bytes);
    tensors_.push_back(tensor);
  }
}

Weights::~Weights() {
  for (const CUdeviceptr tensor : tensors_) {
    STOCK_ENGINE_CALL(cuMemFree_v2, tensor);
  }
}

void Weights::Freeze() const {
  std::vector<fs_weights_range> ranges;
  for (const CUdeviceptr tensor : tensors_) {
    ranges.push_back({tensor, tensor_bytes_});
  }
  if (fs_weights_freeze == nullptr) return;
  const int result =
      fs_weights_freeze(ranges.data(), static_cast<uint32_t>(ranges.size()));
  if (result != 0)
    fprintf(stderr, "the weights stay as they are: %d\n", result);
}

State Weights::Damage() {
  State damage = 0;
  const size_t pieces = tensor_bytes_ / kPieceBytes;
  const size_t piece = next_++ * kStride % pieces;
  for (size_t t = 0; t < tensors_.size(); ++t) {
    STOCK_ENGINE_CALL(cuMemcpyDtoH_v2, piece_.data(),
                      tensors_[t] + piece * kPieceBytes, kPieceBytes);
    const size_t first = (t * pieces + piece) * kPieceWords;
    for (size_t i = 0; i < kPieceWords; ++i) {
      if (piece_[i] != Word(first + i)) damage += i + 1;
    }
  }
  return damage;
}

}  // namespace tinyserve

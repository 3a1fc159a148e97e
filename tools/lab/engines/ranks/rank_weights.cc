#include "tools/lab/engines/ranks/rank_weights.h"

#include <vector>

namespace stock_engine {
namespace {

constexpr uint64_t kHalfBytes = uint64_t{1} << 20;  // of the shared buffer
// The neighbour's writes.
uint32_t Other(uint32_t word) { return word ^ 0x5a5a5a5a; }

void Fill(CUdeviceptr at, uint64_t bytes, uint32_t word) {
  STOCK_ENGINE_CALL(cuMemsetD32Async, at, word, bytes / 4, nullptr);
}

}  // namespace

RankWeights::RankWeights(uint64_t bytes, uint32_t rank)
    : bytes_(bytes), first_word_(0x1000 * (rank + 1)) {
  if (bytes == 0) return;
  STOCK_ENGINE_CALL(cuMemAlloc_v2, &weights_, bytes);
  STOCK_ENGINE_CALL(cuMemAlloc_v2, &shared_, 2 * kHalfBytes);
  Fill(weights_, bytes, first_word_);
}

fineserve::driver::CUipcMemHandle RankWeights::Share() const {
  fineserve::driver::CUipcMemHandle handle = {};
  if (shared_ != 0) STOCK_ENGINE_CALL(cuIpcGetMemHandle, &handle, shared_);
  return handle;
}

void RankWeights::Open(const fineserve::driver::CUipcMemHandle& handle) {
  STOCK_ENGINE_CALL(cuIpcOpenMemHandle_v2, &opened_, handle,
                    fineserve::driver::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

void RankWeights::Write(uint32_t word) {
  Fill(shared_, kHalfBytes, word);
  Fill(opened_ + kHalfBytes, kHalfBytes, Other(word));
}

Answer RankWeights::Verify(uint32_t word) const {
  Answer answer = Compare(weights_, bytes_, first_word_);
  if (answer.wrong == 0) answer = Compare(shared_, kHalfBytes, word);
  if (answer.wrong == 0) {
    answer = Compare(shared_ + kHalfBytes, kHalfBytes, Other(word));
  }
  return answer;
}

Answer RankWeights::Compare(CUdeviceptr at, uint64_t bytes,
                            uint32_t word) const {
  std::vector<uint32_t> read(bytes / 4);
  STOCK_ENGINE_CALL(cuMemcpyDtoH_v2, read.data(), at, bytes);
  for (uint32_t i = 0; i < read.size(); ++i) {
    if (read[i] != word) return {0, 1, i, word, read[i]};
  }
  return {0, 0, 0, word, word};
}

}  // namespace stock_engine

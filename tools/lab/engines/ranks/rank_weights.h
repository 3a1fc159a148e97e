#ifndef TOOLS_LAB_ENGINES_RANKS_RANK_WEIGHTS_H_
#define TOOLS_LAB_ENGINES_RANKS_RANK_WEIGHTS_H_

#include <cstdint>

#include "tools/lab/engines/device_memory.h"
#include "tools/lab/engines/ranks/rank_orders.h"

namespace stock_engine {

// Memory of a rank that is not KV: weights, and a buffer that another rank
// opens by CUDA's legacy IPC and writes to, as custom all-reduce does. Needs a
// current context. Not thread-safe.
class RankWeights {
 public:
  // Allocates the memory and writes the weights once. If `bytes` is 0,
  // allocates nothing.
  RankWeights(uint64_t bytes, uint32_t rank);
  RankWeights(const RankWeights&) = delete;
  RankWeights& operator=(const RankWeights&) = delete;

  fineserve::driver::CUipcMemHandle Share() const;
  void Open(const fineserve::driver::CUipcMemHandle& handle);

  // Writes one half of this rank's buffer, and the other half of the buffer
  // that it has opened.
  void Write(uint32_t word);
  // Looks for a changed word of the weights, or a word of the buffer that
  // neither of its two ranks has written.
  Answer Verify(uint32_t word) const;

 private:
  Answer Compare(CUdeviceptr at, uint64_t bytes, uint32_t word) const;

  const uint64_t bytes_;
  const uint32_t first_word_;
  CUdeviceptr weights_ = 0;
  CUdeviceptr shared_ = 0;
  CUdeviceptr opened_ = 0;
};

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_RANK_WEIGHTS_H_

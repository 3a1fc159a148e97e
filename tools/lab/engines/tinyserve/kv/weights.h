#ifndef TOOLS_LAB_ENGINES_TINYSERVE_KV_WEIGHTS_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_KV_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/lab/engines/device_memory.h"
#include "tools/lab/engines/tinyserve/model/answer.h"

namespace tinyserve {

// Tensors with known words that a model keeps on the GPU besides KV. Confined
// to the engine's thread, with a current context that must outlive this object.
class Weights {
 public:
  // Loads `bytes` in total, rounded down to whole tensors of `tensor_bytes`,
  // which is a multiple of 4 KiB. Ends the program if memory runs out.
  Weights(size_t bytes, size_t tensor_bytes);
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // Tells FineServe, if it is present, that the weights are parameters that are
  // not written from now on.
  void Freeze() const;

  // Reads a piece of each tensor, as a step reads its weights. Returns 0 if it
  // is as it was loaded, else a number that changes the token when it is added
  // to the result of a step.
  State Damage();

 private:
  const size_t tensor_bytes_;
  std::vector<stock_engine::CUdeviceptr> tensors_;
  std::vector<uint64_t> piece_;
  size_t next_ = 0;
};

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_KV_WEIGHTS_H_

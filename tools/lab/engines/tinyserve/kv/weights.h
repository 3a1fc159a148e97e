#ifndef TOOLS_LAB_ENGINES_TINYSERVE_KV_WEIGHTS_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_KV_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/lab/engines/device_memory.h"
#include "tools/lab/engines/tinyserve/model/answer.h"

namespace tinyserve {

// Tensors of known words that a model keeps on the GPU besides KV. Confined to
// the engine's thread, with a current context that outlives it.
class Weights {
 public:
  // Loads `bytes` in all, rounded down to tensors of `tensor_bytes`, a multiple
  // of 4 KiB. Ends the program if there is no memory.
  Weights(size_t bytes, size_t tensor_bytes);
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // Says to FineServe, if it is there, that they are parameters, which are not
  // written any longer.
  void Freeze() const;

  // Reads a piece of each tensor, as a step reads its weights; 0 if all is as
  // it was loaded, else anything else: added to what a step yields, it makes
  // the token another one.
  State Damage();

 private:
  const size_t tensor_bytes_;
  std::vector<stock_engine::CUdeviceptr> tensors_;
  std::vector<uint64_t> piece_;
  size_t next_ = 0;
};

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_KV_WEIGHTS_H_

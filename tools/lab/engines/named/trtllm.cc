// Allocates as TensorRT-LLM does: a window's block manager allocates its pools.

#include "kernels/driver/prototypes.h"

using fineserve::driver::CUdeviceptr;

namespace tensorrt_llm::batch_manager::kv_cache_manager {

class WindowBlockManager {
 public:
  CUdeviceptr allocatePools(size_t bytes);
};

CUdeviceptr WindowBlockManager::allocatePools(size_t bytes) {
  CUdeviceptr address = 0;
  fineserve::driver::cuMemAlloc_v2(&address, bytes);
  return address;
}

}  // namespace tensorrt_llm::batch_manager::kv_cache_manager

extern "C" CUdeviceptr allocate_kv(size_t bytes) {
  tensorrt_llm::batch_manager::kv_cache_manager::WindowBlockManager manager;
  const CUdeviceptr address = manager.allocatePools(bytes);
  return address;
}

// Allocates through functions with the names of vLLM's cumem allocator, which
// PyTorch calls for a separate memory pool.

#include "kernels/driver/prototypes.h"

using fineserve::driver::CUdeviceptr;

extern "C" CUdeviceptr create_and_map(size_t bytes) {
  CUdeviceptr address = 0;
  fineserve::driver::cuMemAlloc_v2(&address, bytes);
  return address;
}

extern "C" CUdeviceptr my_malloc(size_t bytes) {
  const CUdeviceptr address = create_and_map(bytes);
  return address;
}

extern "C" CUdeviceptr allocate_kv(size_t bytes) {
  const CUdeviceptr address = my_malloc(bytes);
  return address;
}

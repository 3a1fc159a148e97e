// Allocates as llama.cpp does: the constructor of its KV cache gets a buffer
// from the CUDA backend through a function that is not exported. Weights are
// allocated through the same function, but from a different caller.

#include "kernels/driver/prototypes.h"

using fineserve::driver::CUdeviceptr;

static CUdeviceptr ggml_backend_cuda_buffer_type_alloc_buffer(size_t bytes) {
  CUdeviceptr address = 0;
  fineserve::driver::cuMemAlloc_v2(&address, bytes);
  return address;
}

class llama_kv_cache {
 public:
  explicit llama_kv_cache(size_t bytes);
  CUdeviceptr address() const { return address_; }

 private:
  CUdeviceptr address_;
};

llama_kv_cache::llama_kv_cache(size_t bytes)
    : address_(ggml_backend_cuda_buffer_type_alloc_buffer(bytes)) {}

extern "C" CUdeviceptr allocate_kv(size_t bytes) {
  const llama_kv_cache cache(bytes);
  return cache.address();
}

extern "C" CUdeviceptr allocate_weights(size_t bytes) {
  const CUdeviceptr address = ggml_backend_cuda_buffer_type_alloc_buffer(bytes);
  return address;
}

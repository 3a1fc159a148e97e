// The functions for PyTorch's pluggable allocator. They call our own hooks, as
// a program calls the driver.

#include <sys/types.h>

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/fineserve_kv.h"

namespace fineserve::driver {

FINESERVE_EXPORT void* fs_torch_malloc(ssize_t bytes, int, void*) {
  if (bytes <= 0) return nullptr;
  CUdeviceptr address = 0;
  fs_kv_begin();
  const CUresult result = cuMemAlloc_v2(&address, static_cast<size_t>(bytes));
  fs_kv_end();
  return result == CUDA_SUCCESS ? reinterpret_cast<void*>(address) : nullptr;
}

FINESERVE_EXPORT void fs_torch_free(void* address, ssize_t, int, void*) {
  // PyTorch cannot use the result; the shim has already recorded any failure.
  static_cast<void>(cuMemFree_v2(reinterpret_cast<CUdeviceptr>(address)));
}

}  // namespace fineserve::driver

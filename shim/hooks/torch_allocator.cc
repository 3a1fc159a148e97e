// The functions for PyTorch's pluggable allocator: every allocation is in a KV
// scope.

#include <sys/types.h>

#include "kernels/driver/export.h"
#include "kernels/driver/prototypes.h"
#include "shim/fineserve_kv.h"

namespace fineserve::shim {
namespace {

class Scope {
 public:
  Scope() { fs_kv_begin(); }
  ~Scope() { fs_kv_end(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

}  // namespace
}  // namespace fineserve::shim

// Calls our own hook, as if the program had called the driver.
FINESERVE_EXPORT void* fs_torch_malloc(ssize_t bytes, int, void*) {
  if (bytes <= 0) return nullptr;
  const fineserve::shim::Scope scope;
  fineserve::driver::CUdeviceptr address = 0;
  const auto result =
      fineserve::driver::cuMemAlloc_v2(&address, static_cast<size_t>(bytes));
  if (result != fineserve::driver::CUDA_SUCCESS) return nullptr;
  return reinterpret_cast<void*>(address);
}

FINESERVE_EXPORT void fs_torch_free(void* address, ssize_t, int, void*) {
  // PyTorch cannot use the result; the shim has recorded a failure.
  static_cast<void>(fineserve::driver::cuMemFree_v2(
      reinterpret_cast<fineserve::driver::CUdeviceptr>(address)));
}

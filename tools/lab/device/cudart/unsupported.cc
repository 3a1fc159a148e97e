// Exported functions that report that they are not emulated.

#include <atomic>
#include <cstdio>

#include "tools/lab/device/cudart/error.h"
#include "tools/lab/device/cudart/unsupported_list.h"

namespace fineserve::cudart {
namespace {

cudaError_t Refuse(std::atomic<bool>& said, const char* name) {
  // Relaxed: the flag publishes nothing else.
  if (!said.exchange(true, std::memory_order_relaxed)) {
    fprintf(stderr,
            "emucuda: the emulated CUDA runtime has no %s; "
            "it returns cudaErrorNotSupported\n",
            name);
  }
  return Record(cudaErrorNotSupported);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
// In the calling conventions of x86-64 and aarch64, a function need not declare
// arguments that it ignores.
#define EMUCUDA_UNSUPPORTED(name)         \
  cudaError_t name() {                    \
    static std::atomic<bool> said{false}; \
    return Refuse(said, #name);           \
  }
EMUCUDA_UNSUPPORTED_RUNTIME_API(EMUCUDA_UNSUPPORTED)
#undef EMUCUDA_UNSUPPORTED

void __cudaRegisterManagedVar() {
  static std::atomic<bool> said{false};
  Refuse(said, "__managed__ variables");
}
}
#pragma GCC visibility pop

}  // namespace fineserve::cudart

// Exported functions that report that they are not emulated.

#include <atomic>

#include "tools/lab/device/nccl/last_error.h"
#include "tools/lab/device/nccl/unsupported_list.h"

namespace fineserve::nccl {
namespace {

ncclResult_t RefuseOnce(std::atomic<bool>& said, const char* name) {
  // Relaxed: the flag publishes nothing else.
  if (said.exchange(true, std::memory_order_relaxed)) return ncclInvalidUsage;
  return Refuse(ncclInvalidUsage,
                "%s is not emulated; it returns ncclInvalidUsage", name);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
// In the calling conventions of x86-64 and aarch64, a function need not declare
// arguments that it ignores.
#define EMUCUDA_UNSUPPORTED(name)         \
  ncclResult_t name() {                   \
    static std::atomic<bool> said{false}; \
    return RefuseOnce(said, #name);       \
  }
EMUCUDA_UNSUPPORTED_NCCL_API(EMUCUDA_UNSUPPORTED)
#undef EMUCUDA_UNSUPPORTED
}
#pragma GCC visibility pop

}  // namespace fineserve::nccl

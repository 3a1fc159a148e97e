// Exported functions: the per-thread variants. Each runs the plain function, in
// which stream 0 then means the calling thread's own stream.

#include "tools/lab/device/api/call_frame.h"
#include "tools/lab/device/api/exported_prototypes.h"

namespace fineserve::driver {

using emucuda::Entry;
using emucuda::PerThreadCall;

#define EMUCUDA_VARIANT(plain, variant, name, since, args, call) \
  CUresult plain##_##variant args {                              \
    const PerThreadCall scope(Entry::plain##_##variant);         \
    return plain call;                                           \
  }
FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(EMUCUDA_VARIANT)
#undef EMUCUDA_VARIANT

}  // namespace fineserve::driver

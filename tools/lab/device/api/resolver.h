#ifndef TOOLS_LAB_DEVICE_API_RESOLVER_H_
#define TOOLS_LAB_DEVICE_API_RESOLVER_H_

#include "kernels/driver/cuda_types.h"
#include "tools/lab/device/call/entry.h"

namespace fineserve::emucuda {

// Returns the driver's own definition of a function, whatever a preloaded
// library exports.
void* FunctionOf(Entry entry);

struct Resolution {
  driver::CUdriverProcAddressQueryResult status;
  void* function;  // null unless status is SUCCESS
};

// Finds the newest version of `name` that is not above `wanted_version`, among
// the versions that a driver of `driver_version` has. Returns a per-thread
// variant if `prefer_per_thread` is true and one fits, else a plain function.
Resolution Resolve(const char* name, int wanted_version, int driver_version,
                   bool prefer_per_thread);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_API_RESOLVER_H_

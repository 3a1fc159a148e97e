#ifndef TOOLS_LAB_DEVICE_API_RESOLVER_H_
#define TOOLS_LAB_DEVICE_API_RESOLVER_H_

#include "kernels/driver/cuda_types.h"
#include "tools/lab/device/call/entry.h"

namespace fineserve::emucuda {

// Returns the driver's own definition, whatever a preloaded library exports.
void* FunctionOf(Entry entry);

struct Resolution {
  driver::CUdriverProcAddressQueryResult status;
  void* function;  // null unless status is SUCCESS
};

// Finds the newest version of `name` that is at most `wanted_version`, among
// those that a driver of `driver_version` has. Takes a per-thread variant if
// these are preferred and one fits, else a plain function.
Resolution Resolve(const char* name, int wanted_version, int driver_version,
                   bool prefer_per_thread);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_API_RESOLVER_H_

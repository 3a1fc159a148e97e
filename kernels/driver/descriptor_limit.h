#ifndef KERNELS_DRIVER_DESCRIPTOR_LIMIT_H_
#define KERNELS_DRIVER_DESCRIPTOR_LIMIT_H_

#include <sys/resource.h>

namespace fineserve::driver {

// Lets this process open as many files as its hard limit allows: the soft limit
// is often 1,024, and each granule, peer and connection counts against it. Only
// for our own programs, never in a host of the shim.
inline void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_DESCRIPTOR_LIMIT_H_

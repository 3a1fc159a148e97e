#ifndef KERNELS_DRIVER_DESCRIPTOR_LIMIT_H_
#define KERNELS_DRIVER_DESCRIPTOR_LIMIT_H_

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

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

// Number of descriptors that listeners leave for the rest of the program.
// libzmq aborts the process if it gets none for a connection (4.3.4,
// ipc_listener.cpp).
inline constexpr int kReservedDescriptors = 32;

// True if the descriptor table has room for another connection besides the
// reserve. If not, the connection stays in the listener's queue and the
// listener stays readable, so a loop that tried again at once would never rest.
// Tests this by making duplicates, since free entries may be anywhere in the
// table.
inline bool MayAccept(int listener) {
  int tried[kReservedDescriptors + 1];
  int count = 0;
  while (count <= kReservedDescriptors &&
         (tried[count] = fcntl(listener, F_DUPFD_CLOEXEC, 0)) >= 0) {
    ++count;
  }
  for (int i = 0; i < count; ++i) close(tried[i]);
  return count > kReservedDescriptors;
}

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_DESCRIPTOR_LIMIT_H_

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

// Descriptors that listeners leave for the rest of the program. libzmq ends the
// process if it finds none for a connection (4.3.4, ipc_listener.cpp).
inline constexpr int kReservedDescriptors = 32;

// True if the table has room for another connection beside the reserve. Without
// it the connection stays in the listener's queue, and the listener readable: a
// loop that tried again at once would never rest.
inline bool MayAccept(int listener) {
  const int next = fcntl(listener, F_DUPFD_CLOEXEC, 0);
  if (next < 0) return false;
  close(next);
  rlimit limit;
  return getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
         static_cast<rlim_t>(next) + kReservedDescriptors < limit.rlim_cur;
}

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_DESCRIPTOR_LIMIT_H_

#ifndef SHIM_HOST_REAL_DRIVER_H_
#define SHIM_HOST_REAL_DRIVER_H_

// The driver's own functions, behind the hooks. The one place that knows how
// to reach them.

#include <atomic>
#include <cstdint>

#include "kernels/driver/entry_points.h"

namespace fineserve::shim {

inline constexpr char kDriverSoname[] = "libcuda.so.1";

// Resolved once, when a libcuda.so.1 is there; null until then. `complete` is
// false for a driver that lacks a function we cannot do without: then nothing
// is redirected. Any thread.
struct Driver {
  driver::EntryPoints entry;
  bool complete = false;
};
const Driver* ResolveDriver();
// What it found; null before. Release in ResolveDriver.
extern constinit std::atomic<const Driver*> g_resolved_driver;
inline const Driver* RealDriver() {
  // Pairs with the release in ResolveDriver.
  const Driver* d = g_resolved_driver.load(std::memory_order_acquire);
  return d != nullptr ? d : ResolveDriver();
}

using MemAlloc = decltype(driver::EntryPoints::cuMemAlloc_v2);
using MemFree = decltype(driver::EntryPoints::cuMemFree_v2);

// The driver's allocation functions for the hooks' fast path. They begin as
// functions of ours that resolve the driver and then call it, so that the fast
// path needs no test. Relaxed loads suffice: code is all they point at.
extern constinit std::atomic<MemAlloc> g_real_mem_alloc;
extern constinit std::atomic<MemFree> g_real_mem_free;

}  // namespace fineserve::shim

#endif  // SHIM_HOST_REAL_DRIVER_H_

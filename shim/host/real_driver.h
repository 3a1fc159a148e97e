#ifndef SHIM_HOST_REAL_DRIVER_H_
#define SHIM_HOST_REAL_DRIVER_H_

// The driver's own functions, which the hooks replace. Only this file resolves
// them.

#include <atomic>

#include "kernels/driver/entry_points.h"

namespace fineserve::shim {

inline constexpr char kDriverSoname[] = "libcuda.so.1";

// `complete` is false for a driver that lacks a function we cannot do without;
// nothing is redirected then.
struct Driver {
  driver::EntryPoints entry;
  bool complete = false;
};

// Finds the driver's functions once a libcuda.so.1 is loaded, and publishes
// them in g_resolved_driver; null until then. Safe on any thread.
const Driver* ResolveDriver();
extern constinit std::atomic<const Driver*> g_resolved_driver;
inline const Driver* RealDriver() {
  // Acquire: pairs with the release in ResolveDriver.
  const Driver* d = g_resolved_driver.load(std::memory_order_acquire);
  return d != nullptr ? d : ResolveDriver();
}

using MemAlloc = decltype(driver::EntryPoints::cuMemAlloc_v2);
using MemFree = decltype(driver::EntryPoints::cuMemFree_v2);

// The driver's allocation functions, for the hooks' fast path. Initially they
// point to functions of ours that resolve the driver and then call it, so that
// the fast path needs no test. Relaxed loads suffice, because they point to
// code only.
extern constinit std::atomic<MemAlloc> g_real_mem_alloc;
extern constinit std::atomic<MemFree> g_real_mem_free;

}  // namespace fineserve::shim

#endif  // SHIM_HOST_REAL_DRIVER_H_

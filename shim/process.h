#ifndef SHIM_PROCESS_H_
#define SHIM_PROCESS_H_

// The shim's state in this process and what the hooks do off their fast path.

#include <cstddef>

#include "kernels/driver/cuda_types.h"
#include "shim/allocator.h"

namespace fineserve::shim {

extern constinit RangeTable g_ranges;
extern constinit Allocator g_allocator;

// An allocation to which the fast path does not apply: an unregistered thread,
// a large size, an open scope.
driver::CUresult AllocateSlowly(AllocationCall call, driver::CUdeviceptr* out);

// Frees of an address that may be ours.
driver::CUresult FreeSlowly(driver::CUdeviceptr address);
driver::CUresult FreeAsyncSlowly(abi::Hook hook, driver::CUdeviceptr address,
                                 driver::CUstream stream,
                                 const Original& original);

// Notes that a hook was called.
void CountCall(abi::Hook hook);

// Opens (+1) or closes (-1) a KV scope of this thread.
void ChangeScope(int by);

}  // namespace fineserve::shim

#endif  // SHIM_PROCESS_H_

#ifndef TOOLS_LAB_ENGINES_KV_MEMORY_H_
#define TOOLS_LAB_ENGINES_KV_MEMORY_H_

// The ways in which engines allocate memory for KV from a driver.

#include <cstddef>

#include "tools/lab/engines/device_memory.h"

namespace stock_engine {

enum class KvAllocator {
  kPlain,    // cuMemAlloc, cuMemFree
  kAsync,    // cuMemAllocAsync, cuMemFreeAsync on the default stream
  kVirtual,  // reserve, create, map; unmap, release: as expandable segments do
  kRdma      // the same, for network cards where the device can: as NCCL does
};

struct KvAllocation {
  CUdeviceptr address = 0;
  size_t bytes = 0;  // mapped ones are multiples of the granularity
  fineserve::driver::CUmemGenericAllocationHandle handle = 0;
};

// On CUDA_ERROR_OUT_OF_MEMORY nothing stays allocated. Exits on any other
// error.
CUresult AllocateKv(KvAllocator how, int device, size_t bytes,
                    KvAllocation* out);
void FreeKv(KvAllocator how, const KvAllocation& allocation);

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_KV_MEMORY_H_

#ifndef TOOLS_LAB_DEVICE_API_FIND_BLOCK_H_
#define TOOLS_LAB_DEVICE_API_FIND_BLOCK_H_

#include "tools/lab/device/allocations/memory_block.h"

namespace fineserve::emucuda {

// Finds the allocation around a device or pinned host address, whichever call
// made it. Returns false if there is none. Each cuMemMap mapping is a separate
// block.
bool FindBlock(CUdeviceptr address, MemoryBlock* block);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_API_FIND_BLOCK_H_

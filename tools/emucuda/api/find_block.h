#ifndef TOOLS_EMUCUDA_API_FIND_BLOCK_H_
#define TOOLS_EMUCUDA_API_FIND_BLOCK_H_

#include "tools/emucuda/heap/memory_block.h"

namespace fineserve::emucuda {

// Finds the allocation around a device or pinned host address, whichever call
// made it. Returns false if there is none. Each cuMemMap mapping is a separate
// block.
bool FindBlock(CUdeviceptr address, MemoryBlock* block);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_API_FIND_BLOCK_H_

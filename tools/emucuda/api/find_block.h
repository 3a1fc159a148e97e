#ifndef TOOLS_EMUCUDA_API_FIND_BLOCK_H_
#define TOOLS_EMUCUDA_API_FIND_BLOCK_H_

#include "tools/emucuda/heap/memory_block.h"

namespace fineserve::emucuda {

// The allocation around a device or pinned host address, whoever made it; false
// if there is none. A cuMemMap mapping is its own block.
bool FindBlock(CUdeviceptr address, MemoryBlock* block);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_API_FIND_BLOCK_H_

#ifndef TOOLS_EMUCUDA_HEAP_POOL_FILE_H_
#define TOOLS_EMUCUDA_HEAP_POOL_FILE_H_

#include "tools/emucuda/heap/pool_table.h"
#include "tools/emucuda/machine/device_list.h"

namespace fineserve::emucuda {

// A pool goes to another process as a descriptor that says on which device its
// memory lies; single allocations follow as shared blocks (shared_block.h).

// INVALID_VALUE unless the pool was created for descriptors in this process.
CUresult ExportPool(const DeviceList& devices, const MemPool& pool,
                    Descriptor* file);

// Enters an imported pool into `pools`. INVALID_VALUE if the descriptor was not
// made by ExportPool, INVALID_DEVICE if this process does not see its device.
CUresult ImportPool(const DeviceList& devices, int fd, PoolTable& pools,
                    CUmemoryPool* pool);

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_HEAP_POOL_FILE_H_

#ifndef TOOLS_LAB_DEVICE_ALLOCATIONS_POOL_FILE_H_
#define TOOLS_LAB_DEVICE_ALLOCATIONS_POOL_FILE_H_

#include "tools/lab/device/allocations/pool_table.h"
#include "tools/lab/device/machine/device_list.h"

namespace fineserve::emucuda {

// A process shares a pool through a descriptor that names the device of the
// pool's memory. It then shares the pool's allocations one by one, as shared
// blocks (shared_block.h).

// Returns INVALID_VALUE unless this process created the pool to be shared by
// descriptor.
CUresult ExportPool(const DeviceList& devices, const MemPool& pool,
                    Descriptor* file);

// Adds an imported pool to `pools`. Returns INVALID_VALUE if the descriptor
// does not come from ExportPool, and INVALID_DEVICE if this process does not
// see the pool's device.
CUresult ImportPool(const DeviceList& devices, int fd, PoolTable& pools,
                    CUmemoryPool* pool);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_ALLOCATIONS_POOL_FILE_H_

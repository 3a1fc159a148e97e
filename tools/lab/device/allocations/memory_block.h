#ifndef TOOLS_LAB_DEVICE_ALLOCATIONS_MEMORY_BLOCK_H_
#define TOOLS_LAB_DEVICE_ALLOCATIONS_MEMORY_BLOCK_H_

#include <cstdint>
#include <memory>

#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/virtual_memory/memory_handles.h"

namespace fineserve::emucuda {

class Context;
class MemPool;

// The call that made the memory at an address.
enum class BlockKind {
  kDevice,   // cuMemAlloc
  kManaged,  // cuMemAllocManaged
  kPool,     // cuMemAllocAsync
  kOpened,   // cuIpcOpenMemHandle
  kVirtual,  // cuMemMap
  kHost,     // cuMemHostAlloc, cuMemHostRegister
};

// A snapshot of one allocation, as pointer attributes describe it. Plain data.
struct MemoryBlock {
  BlockKind kind = BlockKind::kDevice;
  CUdeviceptr base = 0;
  uint64_t bytes = 0;  // as requested
  int device = 0;
  const Context* owner = nullptr;  // null if no context owns it
  const MemPool* pool = nullptr;   // for kPool only
  unsigned host_flags = 0;         // for kHost only
  uint64_t id = 0;                 // unique among live blocks
  // The object that is mapped around the block, and its address; for device
  // memory only.
  std::shared_ptr<const MemoryObject> object = nullptr;
  CUdeviceptr object_base = 0;
};

// The alignment of blocks that share a granule, in bytes.
inline constexpr uint64_t kBlockAlignment = 512;

// Returns the id of a block inside a granule.
inline uint64_t BlockId(const MemoryObject& object, uint64_t offset) {
  // Blocks that share a granule are within its first 2 MiB.
  return object.allocation->serial() << 16 |
         static_cast<uint64_t>(object.device) << 13 |
         (offset / kBlockAlignment & 0x1fff);
}

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_ALLOCATIONS_MEMORY_BLOCK_H_

#include "tools/lab/device/api/find_block.h"

#include <utility>

#include "tools/lab/device/allocations/legacy_heap.h"
#include "tools/lab/device/allocations/opened_memory.h"
#include "tools/lab/device/allocations/pinned_memory.h"
#include "tools/lab/device/allocations/pool_table.h"
#include "tools/lab/device/api/subsystems.h"
#include "tools/lab/device/virtual_memory/address_space.h"

namespace fineserve::emucuda {
namespace {

bool FindMapping(CUdeviceptr address, MemoryBlock* block) {
  CUdeviceptr base;
  uint64_t bytes;
  std::shared_ptr<const MemoryObject> object;
  // Memory that the driver placed itself belongs to a block only where an
  // allocation is live.
  if (Addresses().GetMapping(address, &base, &bytes, &object) != CUDA_SUCCESS ||
      object->handle == 0) {
    return false;
  }
  *block = {.kind = BlockKind::kVirtual,
            .base = base,
            .bytes = bytes,
            .device = object->device,
            .id = BlockId(*object, 0),
            .object = std::move(object),
            .object_base = base};
  return true;
}

}  // namespace

bool FindBlock(CUdeviceptr address, MemoryBlock* block) {
  return Heap().Find(address, block) || Pools().Find(address, block) ||
         Opened().Find(address, block) || FindMapping(address, block) ||
         Pinned().Find(address, block);
}

}  // namespace fineserve::emucuda

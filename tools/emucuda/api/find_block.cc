#include "tools/emucuda/api/find_block.h"

#include <utility>

namespace fineserve::emucuda {
namespace {

bool FindMapping(const Driver& driver, CUdeviceptr address,
                 MemoryBlock* block) {
  CUdeviceptr base;
  uint64_t bytes;
  std::shared_ptr<const MemoryObject> object;
  // What the driver placed by itself, outside its live allocations, is
  // nobody's.
  if (driver.space().GetMapping(address, &base, &bytes, &object) !=
          CUDA_SUCCESS ||
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

bool FindBlock(const Driver& driver, CUdeviceptr address, MemoryBlock* block) {
  return driver.heap().Find(address, block) ||
         driver.pools().Find(address, block) ||
         driver.opened().Find(address, block) ||
         FindMapping(driver, address, block) ||
         driver.pinned().Find(address, block);
}

}  // namespace fineserve::emucuda

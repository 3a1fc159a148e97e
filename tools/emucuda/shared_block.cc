#include "tools/emucuda/shared_block.h"

#include <unistd.h>

#include <utility>

#include "tools/emucuda/driver.h"

namespace fineserve::emucuda {

SharedBlock Share(const MemoryBlock& block) {
  const Allocation& memory = *block.object->allocation;
  return {.magic = SharedBlock::kMagic,
          .device = Driver::Get().devices()[block.device].uuid,
          .granule_start = memory.offset(),
          .granule_serial = memory.serial(),
          .offset = block.base - block.object_base,
          .bytes = block.bytes,
          .pid = static_cast<uint32_t>(getpid()),
          .kind = static_cast<uint32_t>(block.kind)};
}

CUresult Attach(const SharedBlock& block, BlockKind kind,
                std::shared_ptr<const MemoryObject>* object) {
  const Driver& driver = Driver::Get();
  if (block.magic != SharedBlock::kMagic ||
      block.kind != static_cast<uint32_t>(kind)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (int device = 0; driver.HasDevice(device); ++device) {
    if (driver.devices()[device].uuid != block.device) continue;
    auto attached = std::make_shared<MemoryObject>();
    attached->device = device;
    const CUresult result = driver.memory(device).Attach(
        block.granule_start, block.granule_serial, &attached->allocation);
    if (result != CUDA_SUCCESS) return result;
    const uint64_t granule_bytes = attached->allocation->bytes();
    if (block.offset >= granule_bytes ||
        block.bytes > granule_bytes - block.offset) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    driver.memory(device).ClaimSlot();
    *object = std::move(attached);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace fineserve::emucuda

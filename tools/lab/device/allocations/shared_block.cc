#include "tools/lab/device/allocations/shared_block.h"

#include <unistd.h>

#include <optional>
#include <utility>

namespace fineserve::emucuda {

SharedBlock Share(const DeviceList& devices, const MemoryBlock& block) {
  const Allocation& memory = *block.object->allocation;
  return {.magic = SharedBlock::kMagic,
          .device = devices[block.device].uuid,
          .granule_start = memory.offset(),
          .granule_serial = memory.serial(),
          .offset = block.base - block.object_base,
          .bytes = block.bytes,
          .pid = static_cast<uint32_t>(getpid()),
          .kind = static_cast<uint32_t>(block.kind)};
}

CUresult Attach(const DeviceList& devices, const SharedBlock& block,
                BlockKind kind, std::shared_ptr<const MemoryObject>* object) {
  if (block.magic != SharedBlock::kMagic ||
      block.kind != static_cast<uint32_t>(kind)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::optional<int> device = devices.Find(block.device);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  PhysicalMemory& memory = devices.memory(*device);
  auto attached = std::make_shared<MemoryObject>();
  attached->device = *device;
  const CUresult result = memory.Attach(
      block.granule_start, block.granule_serial, &attached->allocation);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t granule_bytes = attached->allocation->bytes();
  if (block.offset >= granule_bytes ||
      block.bytes > granule_bytes - block.offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *object = std::move(attached);
  return CUDA_SUCCESS;
}

}  // namespace fineserve::emucuda

#ifndef TOOLS_LAB_DEVICE_ALLOCATIONS_SHARED_BLOCK_H_
#define TOOLS_LAB_DEVICE_ALLOCATIONS_SHARED_BLOCK_H_

#include <bit>
#include <cstdint>
#include <memory>

#include "tools/lab/device/allocations/memory_block.h"
#include "tools/lab/device/machine/device_list.h"
#include "tools/lab/device/machine/state_folder.h"

namespace fineserve::emucuda {

// The content of a legacy IPC handle or of a pool's exported pointer: a block
// inside a granule of some device. The importer checks every field against the
// device's directory, and refuses stale or forged blocks.
struct SharedBlock {
  static constexpr uint64_t kMagic = 0x6b636f6c62756d65ull;  // "emublock"

  uint64_t magic = 0;
  Uuid device = {};
  uint64_t granule_start = 0;
  uint64_t granule_serial = 0;
  uint64_t offset = 0;  // in the granule
  uint64_t bytes = 0;
  uint32_t pid = 0;   // of the exporter
  uint32_t kind = 0;  // BlockKind
};
static_assert(sizeof(SharedBlock) == 64);

SharedBlock Share(const DeviceList& devices, const MemoryBlock& block);

// Takes a reference to the granule of a shared block. Returns INVALID_VALUE if
// the block is not of `kind` or its memory is gone, and INVALID_DEVICE if this
// process does not see its device.
CUresult Attach(const DeviceList& devices, const SharedBlock& block,
                BlockKind kind, std::shared_ptr<const MemoryObject>* object);

template <typename Handle>
void Encode(const SharedBlock& block, Handle* handle) {
  *handle = std::bit_cast<Handle>(block);
}

template <typename Handle>
SharedBlock Decode(const Handle& handle) {
  return std::bit_cast<SharedBlock>(handle);
}

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_ALLOCATIONS_SHARED_BLOCK_H_

#include "tools/lab/device/allocations/opened_memory.h"

#include <unistd.h>

#include <memory>
#include <utility>

#include "tools/lab/device/virtual_memory/range_map.h"

namespace fineserve::emucuda {
namespace {

bool Same(const SharedBlock& a, const SharedBlock& b) {
  return a.device == b.device && a.granule_serial == b.granule_serial &&
         a.offset == b.offset;
}

}  // namespace

CUresult OpenedMemory::Open(const DeviceList& devices, const Context& owner,
                            const SharedBlock& block, CUdeviceptr* address) {
  if (block.pid == static_cast<uint32_t>(getpid())) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const MutexLock lock(mutex_);
  for (auto& [base, opened] : opened_) {
    if (!Same(opened.shared, block)) continue;
    ++opened.count;
    *address = base;
    return CUDA_SUCCESS;
  }
  std::shared_ptr<const MemoryObject> object;
  CUdeviceptr place = 0;
  CUresult result = Attach(devices, block, BlockKind::kDevice, &object);
  if (result == CUDA_SUCCESS) result = space_.Place(object, &place);
  if (result != CUDA_SUCCESS) return result;
  *address = place + block.offset;
  opened_[*address] = {block, std::move(object), &owner, 1};
  return CUDA_SUCCESS;
}

CUresult OpenedMemory::Close(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto found = opened_.find(address);
  if (found == opened_.end()) return CUDA_ERROR_INVALID_VALUE;
  Opened& opened = found->second;
  if (--opened.count > 0) return CUDA_SUCCESS;
  space_.Remove(address - opened.shared.offset,
                opened.object->allocation->bytes());
  opened_.erase(found);
  return CUDA_SUCCESS;
}

bool OpenedMemory::Find(CUdeviceptr address, MemoryBlock* block) const {
  const MutexLock lock(mutex_);
  const auto found = AtOrBefore(opened_, address);
  if (found == opened_.end()) return false;
  const auto& [base, opened] = *found;
  if (address - base >= opened.shared.bytes) return false;
  *block = {.kind = BlockKind::kOpened,
            .base = base,
            .bytes = opened.shared.bytes,
            .device = opened.object->device,
            .owner = opened.owner,
            .id = BlockId(*opened.object, opened.shared.offset),
            .object = opened.object,
            .object_base = base - opened.shared.offset};
  return true;
}

}  // namespace fineserve::emucuda

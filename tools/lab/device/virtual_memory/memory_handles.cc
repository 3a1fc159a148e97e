#include "tools/lab/device/virtual_memory/memory_handles.h"

#include <utility>

namespace fineserve::emucuda {

CUmemGenericAllocationHandle MemoryHandles::Add(
    int device, const driver::CUmemAllocationProp& prop,
    std::shared_ptr<Allocation> allocation) {
  const MutexLock lock(mutex_);
  // Handles are never reused, so that a stale handle does not name other
  // memory.
  const CUmemGenericAllocationHandle handle = next_++;
  auto object = std::make_shared<const MemoryObject>(
      MemoryObject{handle, device, prop, std::move(allocation), false});
  entries_[handle] = {std::move(object), 1};
  return handle;
}

std::shared_ptr<const MemoryObject> MemoryHandles::Find(
    CUmemGenericAllocationHandle handle) const {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(handle);
  return found == entries_.end() ? nullptr : found->second.object;
}

void MemoryHandles::Retain(std::shared_ptr<const MemoryObject> object) {
  const MutexLock lock(mutex_);
  Entry& entry = entries_[object->handle];
  entry.object = std::move(object);
  ++entry.count;
}

CUresult MemoryHandles::Release(CUmemGenericAllocationHandle handle) {
  std::shared_ptr<const MemoryObject> last;  // dropped after the lock
  const MutexLock lock(mutex_);
  const auto found = entries_.find(handle);
  if (found == entries_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.count == 0) {
    last = std::move(found->second.object);
    entries_.erase(found);
  }
  return CUDA_SUCCESS;
}

}  // namespace fineserve::emucuda

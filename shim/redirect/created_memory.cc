#include "shim/redirect/created_memory.h"

namespace fineserve::shim {

using driver::CUmemGenericAllocationHandle;

size_t CreatedMemory::PlaceOf(CUmemGenericAllocationHandle handle) {
  // Handles are addresses or small numbers; multiplying by the golden ratio
  // spreads both.
  return (handle * 0x9e3779b97f4a7c15u >> 32) % kCapacity;
}

// Returns the entry of the handle, or the free entry where it would be put.
size_t CreatedMemory::Find(CUmemGenericAllocationHandle handle) const {
  size_t at = PlaceOf(handle);
  while (entries_[at].bytes != 0 && entries_[at].handle != handle) {
    at = (at + 1) % kCapacity;
  }
  return at;
}

bool CreatedMemory::Add(CUmemGenericAllocationHandle handle, uint64_t bytes) {
  const MutexLock lock(&mutex_);
  const size_t count = count_.load(std::memory_order_relaxed);
  // Keeps one entry free, so that a search ends.
  if (bytes == 0 || count + 1 >= kCapacity) return false;
  const size_t at = Find(handle);
  if (entries_[at].bytes == 0) {
    count_.store(count + 1, std::memory_order_relaxed);
  }
  entries_[at] = {handle, bytes};
  return true;
}

uint64_t CreatedMemory::Remove(CUmemGenericAllocationHandle handle) {
  const MutexLock lock(&mutex_);
  const size_t at = Find(handle);
  const uint64_t bytes = entries_[at].bytes;
  if (bytes == 0) return 0;
  entries_[at].bytes = 0;
  count_.fetch_sub(1, std::memory_order_relaxed);
  CloseGap(at);
  return bytes;
}

// Moves into the gap the entries that a search would otherwise miss, because it
// would end at the gap.
void CreatedMemory::CloseGap(size_t gap) {
  for (size_t at = (gap + 1) % kCapacity; entries_[at].bytes != 0;
       at = (at + 1) % kCapacity) {
    const size_t from_place =
        (at + kCapacity - PlaceOf(entries_[at].handle)) % kCapacity;
    const size_t from_gap = (at + kCapacity - gap) % kCapacity;
    if (from_place < from_gap) continue;
    entries_[gap] = entries_[at];
    entries_[at].bytes = 0;
    gap = at;
  }
}

}  // namespace fineserve::shim

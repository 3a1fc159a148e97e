#include "shim/redirect/handle_table.h"

namespace fineserve::shim {

using driver::CUmemGenericAllocationHandle;

// Searches the first count_ entries, which are in use, so a search costs only
// as much as the program holds.
VirtualAllocation* HandleTable::Entry(CUmemGenericAllocationHandle handle) {
  const size_t count = count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    if (entries_[i].handle == handle) return &entries_[i];
  }
  return nullptr;
}

bool HandleTable::TakeIfLast(VirtualAllocation* entry,
                             VirtualAllocation* last) {
  if (entry->references > 0 || entry->mappings > 0) return false;
  const size_t left = count_.load(std::memory_order_relaxed) - 1;
  *last = *entry;
  *entry = entries_[left];
  count_.store(left, std::memory_order_relaxed);
  return true;
}

bool HandleTable::Insert(const VirtualAllocation& allocation) {
  MutexLock lock(&mutex_);
  const size_t count = count_.load(std::memory_order_relaxed);
  if (count == kCapacity) return false;
  entries_[count] = allocation;
  count_.store(count + 1, std::memory_order_relaxed);
  return true;
}

bool HandleTable::Find(CUmemGenericAllocationHandle handle,
                       VirtualAllocation* out) {
  MutexLock lock(&mutex_);
  const VirtualAllocation* entry = Entry(handle);
  if (entry == nullptr || entry->references == 0) return false;
  *out = *entry;
  return true;
}

bool HandleTable::Pin(CUmemGenericAllocationHandle handle,
                      VirtualAllocation* out) {
  MutexLock lock(&mutex_);
  VirtualAllocation* entry = Entry(handle);
  if (entry == nullptr || entry->references == 0) return false;
  ++entry->mappings;
  *out = *entry;
  return true;
}

bool HandleTable::Retain(CUmemGenericAllocationHandle handle) {
  MutexLock lock(&mutex_);
  VirtualAllocation* entry = Entry(handle);
  if (entry == nullptr) return false;
  ++entry->references;
  return true;
}

bool HandleTable::Unpin(CUmemGenericAllocationHandle handle, bool keep_lease,
                        VirtualAllocation* last) {
  MutexLock lock(&mutex_);
  VirtualAllocation* entry = Entry(handle);
  if (entry == nullptr || entry->mappings == 0) return false;
  --entry->mappings;
  entry->keep_lease = entry->keep_lease || keep_lease;
  return TakeIfLast(entry, last);
}

bool HandleTable::Release(CUmemGenericAllocationHandle handle,
                          VirtualAllocation* last) {
  MutexLock lock(&mutex_);
  VirtualAllocation* entry = Entry(handle);
  if (entry == nullptr || entry->references == 0) return false;
  --entry->references;
  return TakeIfLast(entry, last);
}

}  // namespace fineserve::shim

#include "tools/lab/device/allocations/pinned_memory.h"

#include <sys/mman.h>

#include "tools/lab/device/stream/context.h"
#include "tools/lab/device/virtual_memory/range_map.h"

namespace fineserve::emucuda {

CUresult PinnedMemory::Allocate(const Context& owner, uint64_t bytes,
                                unsigned flags, void** host) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const MutexLock lock(mutex_);
  Add(owner, reinterpret_cast<uint64_t>(place), bytes, /*lent=*/false, flags);
  *host = place;
  return CUDA_SUCCESS;
}

CUresult PinnedMemory::Free(void* host) {
  const MutexLock lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uint64_t>(host));
  if (found == ranges_.end() || found->second.lent) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(host, found->second.bytes);
  ranges_.erase(found);
  return CUDA_SUCCESS;
}

CUresult PinnedMemory::Register(const Context& owner, void* host,
                                uint64_t bytes, unsigned flags) {
  const uint64_t start = reinterpret_cast<uint64_t>(host);
  if (start == 0 || bytes == 0 || start + bytes < start) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const MutexLock lock(mutex_);
  const auto next = ranges_.lower_bound(start);
  if (Around(ranges_, start) != ranges_.end() ||
      (next != ranges_.end() && next->first - start < bytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  Add(owner, start, bytes, /*lent=*/true, flags);
  return CUDA_SUCCESS;
}

CUresult PinnedMemory::Unregister(void* host) {
  const MutexLock lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uint64_t>(host));
  if (found == ranges_.end() || !found->second.lent) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  ranges_.erase(found);
  return CUDA_SUCCESS;
}

bool PinnedMemory::Contains(const void* host, uint64_t bytes) const {
  const uint64_t start = reinterpret_cast<uint64_t>(host);
  const MutexLock lock(mutex_);
  const auto range = Around(ranges_, start);
  return range != ranges_.end() &&
         bytes <= range->second.bytes - (start - range->first);
}

bool PinnedMemory::Find(CUdeviceptr address, MemoryBlock* block) const {
  const MutexLock lock(mutex_);
  const auto found = Around(ranges_, address);
  if (found == ranges_.end()) return false;
  const auto& [start, range] = *found;
  *block = {.kind = BlockKind::kHost,
            .base = start,
            .bytes = range.bytes,
            .device = range.owner->device(),
            .owner = range.owner,
            .host_flags = range.flags,
            .id = range.id};
  return true;
}

void PinnedMemory::Add(const Context& owner, uint64_t start, uint64_t bytes,
                       bool lent, unsigned flags) {
  ranges_[start] = {bytes, lent, flags, &owner, next_id_++};
}

}  // namespace fineserve::emucuda

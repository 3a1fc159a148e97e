#include "tools/emucuda/pinned_memory.h"

#include <sys/mman.h>

namespace fineserve::emucuda {

CUresult PinnedMemory::Allocate(uint64_t bytes, void** host) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const MutexLock lock(mutex_);
  ranges_[reinterpret_cast<uint64_t>(place)] = bytes;
  *host = place;
  return CUDA_SUCCESS;
}

CUresult PinnedMemory::Free(void* host) {
  const MutexLock lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uint64_t>(host));
  if (found == ranges_.end()) return CUDA_ERROR_INVALID_VALUE;
  munmap(host, found->second);
  ranges_.erase(found);
  return CUDA_SUCCESS;
}

bool PinnedMemory::Contains(const void* host, uint64_t bytes) const {
  const uint64_t start = reinterpret_cast<uint64_t>(host);
  const MutexLock lock(mutex_);
  auto range = ranges_.upper_bound(start);
  if (range == ranges_.begin()) return false;
  --range;
  const uint64_t skip = start - range->first;
  return skip < range->second && bytes <= range->second - skip;
}

}  // namespace fineserve::emucuda

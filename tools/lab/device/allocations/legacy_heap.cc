#include "tools/lab/device/allocations/legacy_heap.h"

#include <memory>
#include <utility>

#include "kernels/driver/rounding.h"
#include "tools/lab/device/stream/context.h"
#include "tools/lab/device/virtual_memory/range_map.h"

namespace fineserve::emucuda {
namespace {

constexpr uint64_t kSmallBytes = uint64_t{1} << 20;

// Finds the lowest gap of `bytes` between live allocations. Returns false if
// there is none.
bool FindGap(const std::map<uint64_t, uint64_t>& live, uint64_t chunk_bytes,
             uint64_t bytes, uint64_t* offset) {
  uint64_t start = 0;
  for (const auto& [next, next_bytes] : live) {
    if (next - start >= bytes) break;
    start = RoundUp(next + next_bytes, kBlockAlignment);
  }
  *offset = start;
  return start + bytes <= chunk_bytes;
}

}  // namespace

CUresult LegacyHeap::Allocate(const Context& owner, PhysicalMemory& memory,
                              uint64_t bytes, BlockKind kind,
                              CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > memory.TotalBytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  const MutexLock lock(mutex_);
  if (bytes < kSmallBytes && Fit(owner, bytes, kind, address)) {
    return CUDA_SUCCESS;
  }
  const CUresult result =
      AddChunk(owner, memory, RoundUp(bytes, kGranularity), kind, address);
  if (result == CUDA_SUCCESS) chunks_[*address].live[0] = bytes;
  return result;
}

bool LegacyHeap::Fit(const Context& owner, uint64_t bytes, BlockKind kind,
                     CUdeviceptr* address) {
  for (auto& [base, chunk] : chunks_) {
    uint64_t offset;
    // A larger chunk holds one large allocation only.
    if (chunk.owner != &owner || chunk.bytes != kGranularity) continue;
    if (chunk.kind != kind) continue;
    if (!FindGap(chunk.live, chunk.bytes, bytes, &offset)) continue;
    chunk.live[offset] = bytes;
    *address = base + offset;
    const Allocation& memory = *chunk.object->allocation;
    const uint64_t start = memory.offset() + offset;
    memory.memory().Poison({start, start + bytes});
    return true;
  }
  return false;
}

CUresult LegacyHeap::AddChunk(const Context& owner, PhysicalMemory& memory,
                              uint64_t bytes, BlockKind kind,
                              CUdeviceptr* address) {
  auto object = std::make_shared<MemoryObject>();
  object->device = owner.device();
  object->managed = kind == BlockKind::kManaged;
  CUresult result = memory.Allocate(bytes, &object->allocation);
  if (result == CUDA_SUCCESS) result = space_.Place(object, address);
  if (result != CUDA_SUCCESS) return result;
  chunks_[*address] = {bytes, &owner, kind, std::move(object), {}};
  return CUDA_SUCCESS;
}

CUresult LegacyHeap::Free(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto chunk = Around(chunks_, address);
  if (chunk == chunks_.end() ||
      chunk->second.live.erase(address - chunk->first) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (chunk->second.live.empty()) RemoveChunk(chunk);
  return CUDA_SUCCESS;
}

void LegacyHeap::FreeAll(const Context& owner) {
  const MutexLock lock(mutex_);
  for (auto next = chunks_.begin(); next != chunks_.end();) {
    const auto chunk = next++;
    if (chunk->second.owner == &owner) RemoveChunk(chunk);
  }
}

void LegacyHeap::RemoveChunk(Chunks::iterator chunk) {
  space_.Remove(chunk->first, chunk->second.bytes);
  chunks_.erase(chunk);
}

bool LegacyHeap::Find(CUdeviceptr address, MemoryBlock* block) const {
  const MutexLock lock(mutex_);
  const auto chunk = Around(chunks_, address);
  if (chunk == chunks_.end()) return false;
  const auto& [base, found] = *chunk;
  const auto live = Around(found.live, address - base);
  if (live == found.live.end()) return false;
  *block = {.kind = found.kind,
            .base = base + live->first,
            .bytes = live->second,
            .device = found.object->device,
            .owner = found.owner,
            .id = BlockId(*found.object, live->first),
            .object = found.object,
            .object_base = base};
  return true;
}

}  // namespace fineserve::emucuda

#include "tools/lab/device/allocations/mem_pool.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "kernels/driver/rounding.h"
#include "tools/lab/device/virtual_memory/range_map.h"

namespace fineserve::emucuda {
namespace {

bool IsReuse(driver::CUmemPool_attribute attribute) {
  return attribute >= driver::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
         attribute <= driver::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

bool Passed(const Dependency& behind) {
  return behind.stream == nullptr || behind.stream->Reached(behind.position);
}

template <typename T>
T Load(const void* from) {
  T value;
  memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace

MemPool::MemPool(AddressSpace& space, PhysicalMemory& memory,
                 const driver::CUmemPoolProps& props, bool imported)
    : space_(space), memory_(memory), props_(props), imported_(imported) {
  access_[device()] = driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

MemPool::~MemPool() {
  const MutexLock lock(mutex_);
  for (const auto& [base, chunk] : chunks_) {
    space_.Remove(base, chunk.object->allocation->bytes());
  }
}

CUresult MemPool::Allocate(uint64_t bytes, const Stream& stream,
                           CUdeviceptr* address) {
  if (bytes == 0 || imported_) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > memory_.TotalBytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  const MutexLock lock(mutex_);
  if (Fit(bytes, stream, address)) return CUDA_SUCCESS;
  CUresult result = AddChunk(RoundUp(bytes, kGranularity));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {  // give back what is free and retry
    Settle();
    TrimLocked(0);
    result = AddChunk(RoundUp(bytes, kGranularity));
  }
  if (result != CUDA_SUCCESS) return result;
  return Fit(bytes, stream, address) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool MemPool::Usable(const Region& region, uint64_t bytes,
                     const Stream& by) const {
  if (region.live != 0 || region.bytes < bytes) return false;
  if (region.behind.stream == nullptr || region.behind.stream.get() == &by) {
    return true;
  }
  const int opportunistic =
      reuse_[driver::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC - 1];
  return opportunistic != 0 && Passed(region.behind);
}

bool MemPool::Fit(uint64_t bytes, const Stream& by, CUdeviceptr* address) {
  const uint64_t tile = RoundUp(bytes, kBlockAlignment);
  for (auto& [base, chunk] : chunks_) {
    for (auto& [offset, region] : chunk.regions) {
      if (!Usable(region, tile, by)) continue;
      if (region.bytes > tile) {
        chunk.regions[offset + tile] = {region.bytes - tile, 0, region.behind};
      }
      region = {tile, bytes, {}};
      used_ += tile;
      used_high_ = std::max(used_high_, used_);
      *address = base + offset;
      return true;
    }
  }
  return false;
}

CUresult MemPool::AddChunk(uint64_t bytes) {
  if (props_.maxSize != 0 && reserved_ + bytes > props_.maxSize) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto object = std::make_shared<MemoryObject>();
  object->device = device();
  CUresult result = memory_.Allocate(bytes, &object->allocation);
  Chunks::iterator chunk;
  if (result == CUDA_SUCCESS) result = PlaceChunk(std::move(object), &chunk);
  if (result != CUDA_SUCCESS) return result;
  chunk->second.regions[0] = {bytes, 0, {}};
  reserved_ += bytes;
  reserved_high_ = std::max(reserved_high_, reserved_);
  return CUDA_SUCCESS;
}

CUresult MemPool::PlaceChunk(std::shared_ptr<const MemoryObject> object,
                             Chunks::iterator* chunk) {
  const uint64_t bytes = object->allocation->bytes();
  CUdeviceptr base = 0;
  CUresult result = space_.Place(object, &base);
  for (int i = 0; i < kMaxDevices && result == CUDA_SUCCESS; ++i) {
    if (access_[i] == driver::CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    result = space_.SetAccess(base, bytes, i, access_[i]);
    if (result != CUDA_SUCCESS) space_.Remove(base, bytes);
  }
  if (result != CUDA_SUCCESS) return result;
  *chunk = chunks_.emplace(base, Chunk{std::move(object), {}}).first;
  return CUDA_SUCCESS;
}

bool MemPool::Free(CUdeviceptr address, const Dependency& behind) {
  const MutexLock lock(mutex_);
  const auto chunk = AtOrBefore(chunks_, address);
  if (chunk == chunks_.end()) return false;
  auto& regions = chunk->second.regions;
  const auto region = regions.find(address - chunk->first);
  if (region == regions.end() || region->second.live == 0) return false;
  if (!imported_) used_ -= region->second.bytes;
  region->second.live = 0;
  region->second.behind = behind;
  return true;
}

void MemPool::Settle() {
  for (auto& [base, chunk] : chunks_) {
    auto& regions = chunk.regions;
    for (auto next = regions.begin(); next != regions.end();) {
      const auto region = next++;
      if (region->second.live != 0 || !Passed(region->second.behind)) continue;
      region->second.behind = {};
      if (region == regions.begin()) continue;
      Region& before = std::prev(region)->second;
      if (before.live != 0 || before.behind.stream != nullptr) continue;
      before.bytes += region->second.bytes;
      regions.erase(region);
    }
  }
}

void MemPool::Trim(uint64_t keep_bytes) {
  const MutexLock lock(mutex_);
  Settle();
  TrimLocked(keep_bytes);
}

void MemPool::TrimToThreshold() {
  const MutexLock lock(mutex_);
  if (!imported_ && reserved_ <= threshold_) return;
  Settle();
  TrimLocked(threshold_);
}

void MemPool::TrimLocked(uint64_t keep_bytes) {
  for (auto next = chunks_.begin(); next != chunks_.end();) {
    const auto chunk = next++;
    const uint64_t bytes = chunk->second.object->allocation->bytes();
    const Region& first = chunk->second.regions.begin()->second;
    const bool whole = imported_ || first.bytes == bytes;
    if (!whole || first.live != 0 || first.behind.stream != nullptr) continue;
    // Skips a chunk whose release would leave less than `keep_bytes`.
    if (!imported_ && reserved_ < keep_bytes + bytes) continue;
    space_.Remove(chunk->first, bytes);
    chunks_.erase(chunk);
    if (!imported_) reserved_ -= bytes;
  }
}

bool MemPool::Empty() {
  const MutexLock lock(mutex_);
  Settle();
  for (const auto& [base, chunk] : chunks_) {
    for (const auto& [offset, region] : chunk.regions) {
      if (region.live != 0 || region.behind.stream != nullptr) return false;
    }
  }
  return true;
}

CUresult MemPool::Import(const DeviceList& devices, const SharedBlock& block,
                         CUdeviceptr* address) {
  std::shared_ptr<const MemoryObject> object;
  if (const CUresult result =
          Attach(devices, block, BlockKind::kPool, &object)) {
    return result;
  }
  if (!imported_ || object->device != device()) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(mutex_);
  Chunks::iterator chunk;
  if (const CUresult result = PlaceChunk(std::move(object), &chunk)) {
    return result;
  }
  chunk->second.regions[block.offset] = {block.bytes, block.bytes, {}};
  *address = chunk->first + block.offset;
  return CUDA_SUCCESS;
}

const uint64_t* MemPool::Number(driver::CUmemPool_attribute attribute) const {
  switch (attribute) {
    case driver::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return &threshold_;
    case driver::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return &reserved_;
    case driver::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return &reserved_high_;
    case driver::CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return &used_;
    case driver::CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return &used_high_;
    default:
      return nullptr;
  }
}

CUresult MemPool::SetAttribute(driver::CUmemPool_attribute attribute,
                               const void* value) {
  const MutexLock lock(mutex_);
  if (IsReuse(attribute)) {
    reuse_[attribute - 1] = Load<int>(value);
    return CUDA_SUCCESS;
  }
  const uint64_t number = Load<uint64_t>(value);
  if (attribute == driver::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    threshold_ = number;
    return CUDA_SUCCESS;
  }
  // A high-water mark can only be reset.
  if (number != 0) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == driver::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
    reserved_high_ = reserved_;
    return CUDA_SUCCESS;
  }
  if (attribute == driver::CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    used_high_ = used_;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult MemPool::GetAttribute(driver::CUmemPool_attribute attribute,
                               void* value) const {
  const MutexLock lock(mutex_);
  if (IsReuse(attribute)) {
    memcpy(value, &reuse_[attribute - 1], sizeof(int));
    return CUDA_SUCCESS;
  }
  const uint64_t* number = Number(attribute);
  if (number == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memcpy(value, number, sizeof(*number));
  return CUDA_SUCCESS;
}

CUresult MemPool::SetAccess(int device, driver::CUmemAccess_flags access) {
  const MutexLock lock(mutex_);
  access_[device] = access;
  for (const auto& [base, chunk] : chunks_) {
    const uint64_t bytes = chunk.object->allocation->bytes();
    if (const CUresult result = space_.SetAccess(base, bytes, device, access)) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

driver::CUmemAccess_flags MemPool::Access(int device) const {
  const MutexLock lock(mutex_);
  return access_[device];
}

bool MemPool::Find(CUdeviceptr address, MemoryBlock* block) const {
  const MutexLock lock(mutex_);
  const auto chunk = AtOrBefore(chunks_, address);
  if (chunk == chunks_.end()) return false;
  const auto& [base, found] = *chunk;
  const auto region = AtOrBefore(found.regions, address - base);
  if (region == found.regions.end()) return false;
  const auto& [offset, tile] = *region;
  if (address - base - offset >= tile.live) return false;
  *block = {.kind = BlockKind::kPool,
            .base = base + offset,
            .bytes = tile.live,
            .device = device(),
            .pool = this,
            .id = BlockId(*found.object, offset),
            .object = found.object,
            .object_base = base};
  return true;
}

}  // namespace fineserve::emucuda

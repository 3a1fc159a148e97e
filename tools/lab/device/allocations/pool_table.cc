#include "tools/lab/device/allocations/pool_table.h"

#include <utility>

namespace fineserve::emucuda {
namespace {

CUmemoryPool HandleOf(MemPool* pool) {
  return reinterpret_cast<CUmemoryPool>(pool);
}

driver::CUmemPoolProps DefaultProperties(int device) {
  driver::CUmemPoolProps props = {};
  props.allocType = driver::CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {driver::CU_MEM_LOCATION_TYPE_DEVICE, device};
  return props;
}

}  // namespace

CUmemoryPool PoolTable::Create(PhysicalMemory& memory,
                               const driver::CUmemPoolProps& props,
                               bool imported) {
  const MutexLock lock(mutex_);
  return Add(memory, props, imported);
}

CUmemoryPool PoolTable::Add(PhysicalMemory& memory,
                            const driver::CUmemPoolProps& props,
                            bool imported) {
  auto pool = std::make_shared<MemPool>(space_, memory, props, imported);
  const CUmemoryPool handle = HandleOf(pool.get());
  pools_.push_back({std::move(pool), false});
  return handle;
}

CUresult PoolTable::Destroy(CUmemoryPool pool) {
  const MutexLock lock(mutex_);
  for (auto next = pools_.begin(); next != pools_.end(); ++next) {
    if (HandleOf(next->pool.get()) != pool || next->doomed) continue;
    const int device = next->pool->device();
    if (default_[device] == pool) return CUDA_ERROR_INVALID_VALUE;
    if (current_[device] == pool) current_[device] = nullptr;
    next->doomed = true;
    if (next->pool->Empty()) pools_.erase(next);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

std::shared_ptr<MemPool> PoolTable::Find(CUmemoryPool pool) const {
  const MutexLock lock(mutex_);
  return FindLocked(pool);
}

std::shared_ptr<MemPool> PoolTable::FindLocked(CUmemoryPool pool) const {
  for (const Pool& known : pools_) {
    if (HandleOf(known.pool.get()) == pool && !known.doomed) return known.pool;
  }
  return nullptr;
}

CUmemoryPool PoolTable::Default(PhysicalMemory& memory, int device) {
  const MutexLock lock(mutex_);
  if (default_[device] == nullptr) {
    default_[device] = Add(memory, DefaultProperties(device), false);
  }
  return default_[device];
}

CUmemoryPool PoolTable::Current(PhysicalMemory& memory, int device) {
  {
    const MutexLock lock(mutex_);
    if (current_[device] != nullptr) return current_[device];
  }
  return Default(memory, device);
}

CUresult PoolTable::SetCurrent(CUmemoryPool pool, int device) {
  const MutexLock lock(mutex_);
  const auto found = FindLocked(pool);
  if (found == nullptr || found->imported() || found->device() != device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  current_[device] = pool;
  return CUDA_SUCCESS;
}

bool PoolTable::Find(CUdeviceptr address, MemoryBlock* block) const {
  const MutexLock lock(mutex_);
  for (const Pool& known : pools_) {
    if (known.pool->Find(address, block)) return true;
  }
  return false;
}

bool PoolTable::Free(CUdeviceptr address, const Dependency& behind) {
  const MutexLock lock(mutex_);
  for (const Pool& known : pools_) {
    if (known.pool->Free(address, behind)) return true;
  }
  return false;
}

void PoolTable::TrimToThresholds() {
  const MutexLock lock(mutex_);
  for (const Pool& known : pools_) known.pool->TrimToThreshold();
  std::erase_if(pools_, [](const Pool& known) {
    return known.doomed && known.pool->Empty();
  });
}

}  // namespace fineserve::emucuda

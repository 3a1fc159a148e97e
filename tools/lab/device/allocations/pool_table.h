#ifndef TOOLS_LAB_DEVICE_ALLOCATIONS_POOL_TABLE_H_
#define TOOLS_LAB_DEVICE_ALLOCATIONS_POOL_TABLE_H_

#include <array>
#include <memory>
#include <vector>

#include "tools/lab/device/allocations/mem_pool.h"

namespace fineserve::emucuda {

// The process's memory pools. A CUmemoryPool is a MemPool* that must be looked
// up here before use. Thread-safe. Invariant: a destroyed pool stays listed
// (`doomed`) until a synchronisation finds it empty.
class PoolTable {
 public:
  explicit PoolTable(AddressSpace& space) : space_(space) {}

  CUmemoryPool Create(PhysicalMemory& memory,
                      const driver::CUmemPoolProps& props, bool imported);
  // Returns INVALID_VALUE for a default or unknown pool.
  CUresult Destroy(CUmemoryPool pool);
  std::shared_ptr<MemPool> Find(CUmemoryPool pool) const;

  // Returns the device's default pool, made at first use; it lives as long as
  // the process.
  CUmemoryPool Default(PhysicalMemory& memory, int device);
  // Returns the pool that was set for the device, by default the default pool.
  CUmemoryPool Current(PhysicalMemory& memory, int device);
  // Returns INVALID_VALUE if the pool is unknown, imported or on another
  // device.
  CUresult SetCurrent(CUmemoryPool pool, int device);

  // Finds the live allocation around an address, in any pool. Returns false if
  // there is none.
  bool Find(CUdeviceptr address, MemoryBlock* block) const;
  // Returns false if no live allocation of any pool starts at `address`.
  bool Free(CUdeviceptr address, const Dependency& behind);
  // Trims every pool. Called by every synchronisation.
  void TrimToThresholds();

 private:
  struct Pool {
    std::shared_ptr<MemPool> pool;
    bool doomed = false;
  };

  CUmemoryPool Add(PhysicalMemory& memory, const driver::CUmemPoolProps& props,
                   bool imported) EMUCUDA_REQUIRES(mutex_);
  std::shared_ptr<MemPool> FindLocked(CUmemoryPool pool) const
      EMUCUDA_REQUIRES(mutex_);

  AddressSpace& space_;
  mutable Mutex mutex_;
  std::vector<Pool> pools_ EMUCUDA_GUARDED_BY(mutex_);
  std::array<CUmemoryPool, kMaxDevices> default_
      EMUCUDA_GUARDED_BY(mutex_) = {};
  // Null means the default pool.
  std::array<CUmemoryPool, kMaxDevices> current_
      EMUCUDA_GUARDED_BY(mutex_) = {};
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_ALLOCATIONS_POOL_TABLE_H_

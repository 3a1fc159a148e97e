#ifndef TOOLS_LAB_DEVICE_ALLOCATIONS_MEM_POOL_H_
#define TOOLS_LAB_DEVICE_ALLOCATIONS_MEM_POOL_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "kernels/driver/cuda_structs.h"
#include "tools/lab/device/allocations/shared_block.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/machine/physical_memory.h"
#include "tools/lab/device/stream/stream.h"
#include "tools/lab/device/virtual_memory/address_space.h"

namespace fineserve::emucuda {

// A stream-ordered memory pool (CUmemoryPool): chunks of device memory, each
// tiled by regions. A region is live, free, or freed behind a place in a
// stream.
//
// Invariants: regions tile a chunk that the pool allocated; an imported chunk
// has one region. A region freed behind a place is handed out only to that
// place's stream, or once that stream has reached the place. Reserved bytes
// count the chunks that the pool allocated; used bytes count their live
// regions, rounded up to 512.
//
// Thread-safe. Never waits for a stream.
class MemPool {
 public:
  MemPool(AddressSpace& space, PhysicalMemory& memory,
          const driver::CUmemPoolProps& props, bool imported);
  ~MemPool();

  int device() const { return props_.location.id; }
  const driver::CUmemPoolProps& props() const { return props_; }
  bool imported() const { return imported_; }

  // Allocates memory that `stream` may use from its next operation on. Returns
  // INVALID_VALUE for an imported pool.
  CUresult Allocate(uint64_t bytes, const Stream& stream, CUdeviceptr* address);
  // Frees memory; other streams may use it once `behind` is reached. Returns
  // false if no live allocation of this pool starts at `address`.
  bool Free(CUdeviceptr address, const Dependency& behind);
  // Releases wholly free chunks while more than `keep_bytes` are reserved.
  void Trim(uint64_t keep_bytes);
  // Trims to the release threshold. Every synchronisation does this.
  void TrimToThreshold();
  // True if nothing is live and streams have reached every free.
  bool Empty();

  CUresult Import(const DeviceList& devices, const SharedBlock& block,
                  CUdeviceptr* address);

  CUresult SetAttribute(driver::CUmemPool_attribute attribute,
                        const void* value);
  CUresult GetAttribute(driver::CUmemPool_attribute attribute,
                        void* value) const;

  CUresult SetAccess(int device, driver::CUmemAccess_flags access);
  driver::CUmemAccess_flags Access(int device) const;

  bool Find(CUdeviceptr address, MemoryBlock* block) const;

 private:
  struct Region {
    uint64_t bytes = 0;  // of the tile
    uint64_t live = 0;   // bytes requested; 0 if not live
    Dependency behind;   // of a freed region; free if it has no stream
  };
  struct Chunk {
    std::shared_ptr<const MemoryObject> object;
    std::map<uint64_t, Region> regions;  // by offset
  };
  using Chunks = std::map<CUdeviceptr, Chunk>;

  // Returns the value of a 64-bit attribute, or null if there is no such
  // attribute.
  const uint64_t* Number(driver::CUmemPool_attribute attribute) const
      EMUCUDA_REQUIRES(mutex_);
  bool Usable(const Region& region, uint64_t bytes, const Stream& by) const
      EMUCUDA_REQUIRES(mutex_);
  bool Fit(uint64_t bytes, const Stream& by, CUdeviceptr* address)
      EMUCUDA_REQUIRES(mutex_);
  CUresult AddChunk(uint64_t bytes) EMUCUDA_REQUIRES(mutex_);
  CUresult PlaceChunk(std::shared_ptr<const MemoryObject> object,
                      Chunks::iterator* chunk) EMUCUDA_REQUIRES(mutex_);
  // Turns freed regions into free ones once their streams have reached the
  // free, and joins neighbours.
  void Settle() EMUCUDA_REQUIRES(mutex_);
  void TrimLocked(uint64_t keep_bytes) EMUCUDA_REQUIRES(mutex_);

  AddressSpace& space_;
  PhysicalMemory& memory_;
  const driver::CUmemPoolProps props_;
  const bool imported_;

  mutable Mutex mutex_;
  Chunks chunks_ EMUCUDA_GUARDED_BY(mutex_);
  std::array<driver::CUmemAccess_flags, kMaxDevices> access_
      EMUCUDA_GUARDED_BY(mutex_) = {};
  // CU_MEMPOOL_ATTR_REUSE_*, indexed by attribute - 1: whether other streams
  // may reuse memory. Only the second has an effect here.
  std::array<int, 3> reuse_ EMUCUDA_GUARDED_BY(mutex_) = {1, 1, 1};
  uint64_t threshold_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  uint64_t reserved_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  uint64_t reserved_high_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  uint64_t used_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  uint64_t used_high_ EMUCUDA_GUARDED_BY(mutex_) = 0;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_ALLOCATIONS_MEM_POOL_H_

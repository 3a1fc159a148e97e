#ifndef SHIM_REDIRECT_VIRTUAL_MEMORY_H_
#define SHIM_REDIRECT_VIRTUAL_MEMORY_H_

#include <cstdint>

#include "daemon/contract/abi/hooks.h"
#include "kernels/driver/entry_points.h"
#include "shim/host/original.h"
#include "shim/link/daemon_link.h"
#include "shim/link/scoreboard_writer.h"
#include "shim/map/granules.h"
#include "shim/map/range_table.h"
#include "shim/redirect/handle_table.h"

namespace fineserve::shim {

// The cuMemCreate family on leased slabs. cuMemCreate gives the program the
// driver's own handle of the first granule. cuMemMap of that handle maps all
// granules, one after another, at the program's address. Everything else that
// the program does by address (access, unmapping, freeing the range) works on
// those mappings unchanged. The lease ends when the program has neither the
// handle nor a mapping left.
//
// Each function handles memory of ours, and makes `original`'s call otherwise;
// the end of each allocation is recorded. Not for a forked child, whose
// parent's threads may have held our locks. Thread-safe; makes no driver call
// under a lock. Constant-initialised, trivially destroyed.
class VirtualMemory {
 public:
  // The arguments must outlive this object. `ranges` holds the redirected
  // allocations without a handle, `mappings` the mappings of redirected memory
  // that the program made itself.
  constexpr VirtualMemory(DaemonLink* link, RangeTable* ranges,
                          RangeTable* mappings, ScoreboardWriter* scoreboard)
      : link_(link),
        ranges_(ranges),
        mappings_(mappings),
        scoreboard_(scoreboard) {}

  bool empty() const { return handles_.empty(); }

  // Leases slabs for an allocation of `bytes` on the device that `prop` names.
  // Sets the handle (as base), asked_bytes and lease of `out`.
  MapResult Create(const driver::EntryPoints& entry, uint64_t bytes,
                   const driver::CUmemAllocationProp& prop, Redirection* out);

  driver::CUresult Map(const driver::EntryPoints& entry,
                       driver::CUdeviceptr address, uint64_t bytes,
                       uint64_t offset,
                       driver::CUmemGenericAllocationHandle handle,
                       unsigned long long flags, const Original& original);
  driver::CUresult Unmap(const driver::EntryPoints& entry,
                         driver::CUdeviceptr address, uint64_t bytes,
                         const Original& original);
  driver::CUresult Release(const driver::EntryPoints& entry,
                           driver::CUmemGenericAllocationHandle handle,
                           const Original& original);
  // Adds a reference to the handle that is mapped at `address`.
  driver::CUresult Retain(const driver::EntryPoints& entry,
                          driver::CUmemGenericAllocationHandle* out,
                          driver::CUdeviceptr address,
                          const Original& original);
  driver::CUresult Properties(const driver::EntryPoints& entry,
                              driver::CUmemAllocationProp* out,
                              driver::CUmemGenericAllocationHandle handle,
                              const Original& original);

  // Copies the allocation behind a handle that the program holds.
  bool Find(driver::CUmemGenericAllocationHandle handle,
            VirtualAllocation* out) {
    return handles_.Find(handle, out);
  }

 private:
  // The allocations that ended in one call.
  struct Ended {
    uint32_t count = 0;
    uint64_t bytes = 0;  // of all of them
    uint32_t lease = 0;  // of the last one
    void Add(const VirtualAllocation& allocation);
  };

  MapResult Import(const driver::EntryPoints& entry,
                   VirtualAllocation* allocation);
  driver::CUresult MapGranules(const driver::EntryPoints& entry,
                               const VirtualAllocation& allocation,
                               driver::CUdeviceptr address, uint64_t bytes,
                               unsigned long long flags);
  void Drop(const driver::EntryPoints& entry,
            const VirtualAllocation& allocation);
  void Unpin(const driver::EntryPoints& entry,
             driver::CUmemGenericAllocationHandle handle, bool keep_lease,
             Ended* ended);
  void RecordEnd(abi::Hook hook, const Ended& ended);

  DaemonLink* const link_;
  RangeTable* const ranges_;
  RangeTable* const mappings_;
  ScoreboardWriter* const scoreboard_;
  HandleTable handles_;
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_VIRTUAL_MEMORY_H_

#ifndef SHIM_MAP_WHOLE_MAPPING_H_
#define SHIM_MAP_WHOLE_MAPPING_H_

#include <cstdint>

#include "kernels/driver/entry_points.h"
#include "shim/link/daemon_link.h"
#include "shim/map/granules.h"
#include "shim/map/range_table.h"

namespace fineserve::shim {

// Mode `whole`: an allocation whose blocks we cannot see gets whole slabs for
// the life of the allocation, in one virtual range:
//
//   lease → reserve → per granule: import, map, release the handle (the
//   mapping keeps the memory) → one access call over all → the program
//
// After a failure everything is undone in reverse. If undoing fails, the lease
// is kept, because memory that may still be mapped must not go to another
// engine; the daemon reclaims it when this process ends. Stateless; safe on any
// thread that has a current context.
class WholeMapping {
 public:
  WholeMapping(const driver::EntryPoints& entry, DaemonLink* link)
      : entry_(entry), link_(link) {}

  MapResult Map(uint64_t bytes, Redirection* out);

  // Waits for the context's work, as the driver's own free does, then unmaps
  // the range and returns the lease. After an error (such as a sticky one) the
  // lease is kept, and the range may still be mapped.
  driver::CUresult Unmap(const Redirection& range);

  // Unmaps the range without the wait, if no work can touch it any longer.
  driver::CUresult Discard(const Redirection& range);

 private:
  driver::CUresult Reserve(const Lease& lease, Redirection* out);
  MapResult MapGranules(const Lease& lease, driver::CUdeviceptr base,
                        uint32_t* mapped);
  driver::CUresult Permit(const Redirection& range);
  MapResult RollBack(const Lease& lease, const Redirection& range,
                     uint32_t mapped, MapResult why);

  const driver::EntryPoints& entry_;
  DaemonLink* const link_;
};

}  // namespace fineserve::shim

#endif  // SHIM_MAP_WHOLE_MAPPING_H_

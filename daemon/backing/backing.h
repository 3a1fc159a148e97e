#ifndef DAEMON_BACKING_BACKING_H_
#define DAEMON_BACKING_BACKING_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/slab/ids.h"
#include "daemon/slab/pool_geometry.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::backing {

// The physical memory of one pool: what the slab manager's decisions act on.
// Two implementations: CudaBacking on a driver (real or emulated), SimBacking
// on plain memfds for tests. Confined to the daemon's thread.
class Backing {
 public:
  virtual ~Backing() = default;

  // Of the pool at its largest; not every slab need have memory.
  virtual const slab::PoolGeometry& geometry() const = 0;

  // Makes the granules of `slab`, which has none; they hold anything.
  // ResourceExhausted if the GPU has not that much free; nothing is made then.
  virtual absl::Status CreateSlab(slab::SlabId slab) = 0;

  // Gives up the granules of `slab`, of which no fill is under way. The GPU
  // gets them back when the last process that maps them does likewise.
  virtual void DestroySlab(slab::SlabId slab) = 0;

  // A new descriptor of granule `index` < geometry().granule_count(). Granules
  // [s × granules_per_slab, (s + 1) × granules_per_slab) are slab s's, which
  // must have memory.
  virtual absl::StatusOr<driver::Descriptor> Export(uint32_t index) = 0;

  // Begins to fill `slab` with zeros. Returns at once; completion shows in
  // TakeZeroed. After an error the slab is in an unknown state and must not be
  // leased.
  virtual absl::Status StartZero(slab::SlabId slab) = 0;

  // Slabs whose fill has completed on the device since the last call, in any
  // order.
  virtual absl::StatusOr<std::vector<slab::SlabId>> TakeZeroed() = 0;

  // The processes that the driver still knows on this GPU, dead ones whose
  // device work or teardown is not over included. An error means "cannot
  // tell": nothing may be concluded from it.
  virtual absl::StatusOr<std::vector<pid_t>> DevicePids() = 0;
};

}  // namespace fineserve::backing

#endif  // DAEMON_BACKING_BACKING_H_

#ifndef DAEMON_FINESERVED_BACKING_BACKING_H_
#define DAEMON_FINESERVED_BACKING_BACKING_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/pool/geometry/pool_geometry.h"
#include "daemon/pool/slab_ids.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::backing {

// The physical memory of one pool, on which the slab manager's decisions act.
// Two implementations: CudaBacking on a driver (real or emulated), and
// SimBacking on plain memfds for tests. Used by one thread at a time; calls may
// take long (DeviceQueue).
class Backing {
 public:
  virtual ~Backing() = default;

  // From now on only the calling thread uses this object, except for the last
  // three calls, which any one thread may make at any time.
  virtual void EnterThread() {}

  // Returns the geometry of the pool at its largest; not every slab has memory.
  virtual const slab::PoolGeometry& geometry() const = 0;

  // Makes the granules of `slab`, which has none. Their content is undefined.
  // ResourceExhausted, with nothing made, if the GPU has too little free
  // memory.
  virtual absl::Status CreateSlab(slab::SlabId slab) = 0;

  // Releases the granules of `slab`, which is not being filled. The GPU gets
  // the memory back once every process that maps the granules has released them
  // too.
  virtual void DestroySlab(slab::SlabId slab) = 0;

  // Returns a new descriptor of granule `index` < geometry().granule_count().
  // Granules [s × granules_per_slab, (s + 1) × granules_per_slab) belong to
  // slab s, which must have memory.
  virtual absl::StatusOr<driver::Descriptor> Export(uint32_t index) = 0;

  // Begins to fill `slab` with zeros and returns at once; TakeZeroed says when
  // the fill has completed. After an error the slab's content is unknown; the
  // fill may be tried again unless TakeZeroed fails.
  virtual absl::Status StartZero(slab::SlabId slab) = 0;

  // Returns the slabs whose fill has completed on the device since the last
  // call, in any order. An error means that this process has lost the device
  // for good.
  virtual absl::StatusOr<std::vector<slab::SlabId>> TakeZeroed() = 0;

  // Returns the GPU's free memory outside the pool, available to all programs.
  virtual absl::StatusOr<uint64_t> FreeBytes() = 0;

  // Returns the processes that the driver still lists on this GPU, including
  // dead ones whose device work or teardown is not over, and dead processes in
  // `awaited` whose work may go on unlisted (MpsWork). An error means that the
  // driver cannot say, and nothing may be concluded from it.
  virtual absl::StatusOr<std::vector<pid_t>> DevicePids(
      const std::vector<pid_t>& awaited) = 0;
  // Learns which processes are on the GPU, for DevicePids. Call it while the
  // processes in question are alive.
  virtual void NoteProcesses() {}
  // Returns the number of uncorrectable errors of the GPU's memory so far.
  virtual uint64_t MemoryErrors() { return 0; }
};

}  // namespace fineserve::backing

#endif  // DAEMON_FINESERVED_BACKING_BACKING_H_

#ifndef DAEMON_FINESERVED_BACKING_SIM_BACKING_H_
#define DAEMON_FINESERVED_BACKING_SIM_BACKING_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "daemon/fineserved/backing/backing.h"

namespace fineserve::backing {

// A pool without a driver: granules are memfds, and the test decides when fills
// complete and which processes are on the device. Confined to one thread.
class SimBacking final : public Backing {
 public:
  // The first `present` slabs have memory.
  static absl::StatusOr<SimBacking> Create(const slab::PoolGeometry& geometry,
                                           uint32_t present);
  static absl::StatusOr<SimBacking> Create(const slab::PoolGeometry& geometry) {
    return Create(geometry, geometry.slab_count);
  }

  const slab::PoolGeometry& geometry() const override { return geometry_; }
  absl::Status CreateSlab(slab::SlabId slab) override;
  void DestroySlab(slab::SlabId slab) override;
  absl::StatusOr<driver::Descriptor> Export(uint32_t index) override;
  absl::Status StartZero(slab::SlabId slab) override;
  absl::StatusOr<std::vector<slab::SlabId>> TakeZeroed() override;
  absl::StatusOr<uint64_t> FreeBytes() override;
  absl::StatusOr<std::vector<pid_t>> DevicePids(
      const std::vector<pid_t>& awaited) override;
  uint64_t MemoryErrors() override { return memory_errors_; }

  // Sets whether fills complete in TakeZeroed. Initially they do.
  void set_zeroing_completes(bool completes) { completes_ = completes; }
  // Sets the processes that the driver lists besides this one.
  void set_device_pids(absl::StatusOr<std::vector<pid_t>> pids) {
    pids_ = std::move(pids);
  }
  // Sets whether the driver lists the processes of another pid namespace.
  void set_foreign_pids(bool foreign) { foreign_pids_ = foreign; }
  void set_memory_errors(uint64_t errors) { memory_errors_ = errors; }
  // Makes fills fail with `why`: the device is lost.
  void set_device_lost(absl::Status why) { lost_ = std::move(why); }
  // Sets the GPU's free memory without a pool; FreeBytes returns it less the
  // pool's memory.
  void set_device_bytes(uint64_t bytes) { device_bytes_ = bytes; }
  // StartZero fails while this is on.
  void set_zeroing_fails(bool fails) { zeroing_fails_ = fails; }
  // CreateSlab fails while this is on.
  void set_device_full(bool full) { device_full_ = full; }
  size_t zeroing_count() const { return zeroing_.size(); }

 private:
  explicit SimBacking(const slab::PoolGeometry& geometry)
      : geometry_(geometry) {}

  slab::PoolGeometry geometry_;
  std::vector<driver::Descriptor> granules_;
  std::deque<slab::SlabId> zeroing_;
  uint64_t device_bytes_ = 0;
  uint64_t memory_errors_ = 0;
  bool completes_ = true;
  bool device_full_ = false;
  bool zeroing_fails_ = false;
  bool foreign_pids_ = false;
  absl::Status lost_;
  absl::StatusOr<std::vector<pid_t>> pids_ = std::vector<pid_t>{};
};

}  // namespace fineserve::backing

#endif  // DAEMON_FINESERVED_BACKING_SIM_BACKING_H_

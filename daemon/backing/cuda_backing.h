#ifndef DAEMON_BACKING_CUDA_BACKING_H_
#define DAEMON_BACKING_CUDA_BACKING_H_

#include <deque>
#include <memory>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/backing/backing.h"
#include "daemon/backing/device.h"
#include "daemon/backing/nvml.h"
#include "kernels/driver/device_memory.h"

namespace fineserve::backing {

// A pool on a CUDA driver. The granules are created once, mapped side by side
// into one range of the daemon's own (for zeroing), and exported on request.
// Confined to the thread that created it: the context is current there.
class CudaBacking final : public Backing {
 public:
  // Called now and then while granules are created: (done, of).
  using Progress = void (*)(uint32_t done, uint32_t of);

  // Creates the whole pool. ResourceExhausted if the GPU has not that much
  // free. `nvml_error` is logged by the caller if NVML cannot be had: then
  // DevicePids cannot tell, and quarantined slabs stay so.
  static absl::StatusOr<std::unique_ptr<CudaBacking>> Create(
      const driver::Driver& driver, const Device& device,
      const slab::PoolGeometry& geometry, absl::StatusOr<Nvml> nvml,
      Progress progress = nullptr);
  ~CudaBacking() override;

  const slab::PoolGeometry& geometry() const override { return geometry_; }
  absl::StatusOr<driver::Descriptor> Export(uint32_t index) override;
  absl::Status StartZero(slab::SlabId slab) override;
  absl::StatusOr<std::vector<slab::SlabId>> TakeZeroed() override;
  absl::StatusOr<std::vector<pid_t>> DevicePids() override;

 private:
  // A fill in flight; fills complete in the order of their stream.
  struct Fill {
    slab::SlabId slab;
    driver::CUevent event;
  };

  CudaBacking(const driver::Driver& driver, const slab::PoolGeometry& geometry,
              driver::Context context, driver::Reservation range,
              absl::StatusOr<Nvml> nvml);
  absl::Status CreateGranules(driver::CUdevice device, Progress progress);
  absl::Status CreateStream();
  absl::StatusOr<driver::CUevent> RecordEvent();

  const driver::Driver driver_;
  const slab::PoolGeometry geometry_;
  const absl::StatusOr<Nvml> nvml_;
  // In this order: what is below dies first.
  driver::Context context_;
  driver::Reservation range_;
  std::vector<driver::Granule> granules_;
  std::vector<driver::Mapping> mappings_;
  driver::CUstream stream_ = nullptr;
  std::deque<Fill> fills_;
};

}  // namespace fineserve::backing

#endif  // DAEMON_BACKING_CUDA_BACKING_H_

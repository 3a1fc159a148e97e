#ifndef DAEMON_FINESERVED_BACKING_CUDA_BACKING_H_
#define DAEMON_FINESERVED_BACKING_CUDA_BACKING_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/fineserved/backing/backing.h"
#include "daemon/fineserved/backing/find_device.h"
#include "daemon/fineserved/backing/mps_work.h"
#include "daemon/fineserved/backing/nvml.h"
#include "kernels/driver/driver_handles.h"

namespace fineserve::backing {

// A pool on a CUDA driver. The daemon maps granules side by side to zero them,
// and exports them on request. Confined to the thread that created it, on which
// its context is current.
class CudaBacking final : public Backing {
 public:
  // Called after each slab that Create makes, with slabs made and slabs to
  // make.
  using Progress = void (*)(uint32_t done, uint32_t of);

  // A pool's granules by their index in the pool.
  using Granules = std::map<uint32_t, driver::Descriptor>;
  // The keeper of the granules' descriptors, which lets the pool outlive this
  // process. When `keep` returns, the keeper has the descriptor; `forget`
  // undoes that.
  struct Keeper {
    std::function<absl::Status(uint32_t granule, int descriptor)> keep;
    std::function<void(uint32_t granule)> forget;
  };

  // Makes the slabs in `present` out of new granules or, if all of a slab's
  // granules were `kept`, out of the kept ones. Kept granules of other slabs
  // are released. ResourceExhausted if the GPU has too little free memory;
  // DataLoss if only some were kept. Without `nvml`, DevicePids fails and
  // quarantined slabs stay quarantined; the caller logs why. `terminate` is for
  // MpsWork; without it, a dead MPS client is awaited until its server is gone.
  static absl::StatusOr<std::unique_ptr<CudaBacking>> Create(
      const driver::Driver& driver, const Device& device,
      const slab::PoolGeometry& geometry,
      const std::vector<slab::SlabId>& present, absl::StatusOr<Nvml> nvml,
      Granules kept = {}, absl::optional<Keeper> keeper = absl::nullopt,
      Progress progress = nullptr, MpsWork::Terminate terminate = nullptr);
  ~CudaBacking() override;

  void EnterThread() override;
  const slab::PoolGeometry& geometry() const override { return geometry_; }
  absl::Status CreateSlab(slab::SlabId slab) override;
  void DestroySlab(slab::SlabId slab) override;
  absl::StatusOr<driver::Descriptor> Export(uint32_t index) override;
  absl::Status StartZero(slab::SlabId slab) override;
  absl::StatusOr<std::vector<slab::SlabId>> TakeZeroed() override;
  absl::StatusOr<uint64_t> FreeBytes() override;
  absl::StatusOr<std::vector<pid_t>> DevicePids(
      const std::vector<pid_t>& awaited) override;
  void NoteProcesses() override;
  uint64_t MemoryErrors() override;

 private:
  // A fill in flight; fills complete in the order of their stream.
  struct Fill {
    slab::SlabId slab;
    driver::CUevent event;
  };

  // A slab's granules, each mapped; mappings are destroyed first. Each granule
  // is exported once, because an export needs the device node, which a
  // container may lose; engines and the keeper get copies of the descriptor. A
  // kept slab has only descriptors until it must be filled: thousands of
  // imports would delay a daemon that takes over, and engines hold most slabs.
  struct SlabMemory {
    std::vector<driver::Descriptor> descriptors;
    std::vector<driver::Granule> granules;
    std::vector<driver::Mapping> mappings;
  };

  CudaBacking(const driver::Driver& driver, driver::CUdevice device,
              const slab::PoolGeometry& geometry, driver::Context context,
              driver::Reservation range, absl::StatusOr<Nvml> nvml,
              absl::optional<Keeper> keeper, MpsWork::Terminate terminate);
  driver::CUdeviceptr AddressOf(slab::SlabId slab) const;
  uint32_t FirstOf(slab::SlabId slab) const {
    return slab::Number(slab) * geometry_.granules_per_slab;
  }
  absl::Status TakeKept(const std::vector<slab::SlabId>& present,
                        Granules* kept, Progress progress);
  absl::Status Add(SlabMemory* memory, slab::SlabId slab,
                   driver::Granule granule) const;
  absl::Status Take(slab::SlabId slab, Granules* kept);
  // Maps the slab, if it was kept and is not mapped yet.
  absl::Status MapKept(slab::SlabId slab);
  absl::StatusOr<SlabMemory> MakeMemory(slab::SlabId slab) const;
  absl::Status AllowAccess(slab::SlabId slab) const;
  void Forget(slab::SlabId slab) const;
  absl::Status CreateStream();
  absl::StatusOr<driver::CUevent> RecordEvent();
  absl::Status Failed(const absl::Status& s);

  const driver::Driver driver_;
  const driver::CUdevice device_;
  const slab::PoolGeometry geometry_;
  const absl::StatusOr<Nvml> nvml_;
  const absl::optional<Keeper> keeper_;
  MpsWork mps_;  // of the thread that lists processes
  // Members are destroyed from the last to the first.
  driver::Context context_;
  driver::Reservation range_;
  std::vector<SlabMemory> slabs_;
  driver::CUstream stream_ = nullptr;
  std::deque<Fill> fills_;
  absl::Status lost_;
};

}  // namespace fineserve::backing

#endif  // DAEMON_FINESERVED_BACKING_CUDA_BACKING_H_

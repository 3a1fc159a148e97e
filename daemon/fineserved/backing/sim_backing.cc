#include "daemon/fineserved/backing/sim_backing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/base/errno_status.h"

namespace fineserve::backing {
absl::StatusOr<SimBacking> SimBacking::Create(
    const slab::PoolGeometry& geometry, uint32_t present) {
  SimBacking backing(geometry);
  backing.granules_.resize(geometry.granule_count());
  for (uint32_t i = 0; i < present; ++i) {
    absl::Status s = backing.CreateSlab(slab::SlabId{i});
    if (!s.ok()) return s;
  }
  return backing;
}

absl::Status SimBacking::CreateSlab(slab::SlabId slab) {
  if (device_full_) return absl::ResourceExhaustedError("the device is full");
  const uint32_t first = slab::Number(slab) * geometry_.granules_per_slab;
  for (uint32_t i = first; i < first + geometry_.granules_per_slab; ++i) {
    driver::Descriptor fd(memfd_create("sim-granule", MFD_CLOEXEC));
    if (!fd.valid()) return base::ErrnoStatus("memfd_create");
    if (ftruncate(fd.get(), static_cast<off_t>(geometry_.granule_bytes)) != 0) {
      return base::ErrnoStatus("ftruncate");
    }
    granules_[i] = std::move(fd);
  }
  return absl::OkStatus();
}

void SimBacking::DestroySlab(slab::SlabId slab) {
  const uint32_t first = slab::Number(slab) * geometry_.granules_per_slab;
  for (uint32_t i = first; i < first + geometry_.granules_per_slab; ++i) {
    granules_[i].Reset();
  }
}

absl::StatusOr<driver::Descriptor> SimBacking::Export(uint32_t index) {
  driver::Descriptor copy(fcntl(granules_[index].get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return base::ErrnoStatus("F_DUPFD_CLOEXEC");
  return copy;
}

absl::StatusOr<uint64_t> SimBacking::FreeBytes() {
  uint64_t pool = 0;
  for (const driver::Descriptor& granule : granules_) {
    if (granule.valid()) pool += geometry_.granule_bytes;
  }
  return device_bytes_ - std::min(device_bytes_, pool);
}

absl::StatusOr<std::vector<pid_t>> SimBacking::DevicePids(
    const std::vector<pid_t>& /*awaited*/) {
  absl::StatusOr<std::vector<pid_t>> pids = pids_;
  // The daemon has a context on its GPU, so it is listed too.
  if (pids.ok() && !foreign_pids_) pids->push_back(getpid());
  return pids;
}

absl::Status SimBacking::StartZero(slab::SlabId slab) {
  if (!lost_.ok()) return lost_;
  if (zeroing_fails_) return absl::InternalError("cuEventCreate");
  zeroing_.push_back(slab);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<slab::SlabId>> SimBacking::TakeZeroed() {
  if (!lost_.ok()) return lost_;
  if (!completes_) return std::vector<slab::SlabId>{};
  std::vector<slab::SlabId> done(zeroing_.begin(), zeroing_.end());
  for (slab::SlabId slab : done) {
    const uint32_t first = slab::Number(slab) * geometry_.granules_per_slab;
    for (uint32_t i = first; i < first + geometry_.granules_per_slab; ++i) {
      if (fallocate(granules_[i].get(),
                    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    static_cast<off_t>(geometry_.granule_bytes)) != 0) {
        return base::ErrnoStatus("fallocate");
      }
    }
  }
  zeroing_.clear();
  return done;
}

}  // namespace fineserve::backing

#include "daemon/fineserved/backing/cuda_backing.h"

#include <errno.h>
#include <fcntl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "kernels/driver/status.h"

namespace fineserve::backing {

using driver::ToStatus;

absl::StatusOr<std::unique_ptr<CudaBacking>> CudaBacking::Create(
    const driver::Driver& driver, const Device& device,
    const slab::PoolGeometry& geometry,
    const std::vector<slab::SlabId>& present, absl::StatusOr<Nvml> nvml,
    Granules kept, absl::optional<Keeper> keeper, Progress progress,
    MpsWork::Terminate terminate) {
  absl::StatusOr<driver::Context> context =
      driver::Context::Retain(driver, device.ordinal);
  if (!context.ok()) return context.status();
  absl::StatusOr<driver::Reservation> range =
      driver::Reservation::Create(driver, geometry.pool_bytes());
  if (!range.ok()) return range.status();
  std::unique_ptr<CudaBacking> backing(new CudaBacking(
      driver, device.ordinal, geometry, *std::move(context), *std::move(range),
      std::move(nvml), std::move(keeper), std::move(terminate)));
  absl::Status s = backing->TakeKept(present, &kept, progress);
  if (!s.ok()) return s;
  s = backing->CreateStream();
  if (!s.ok()) return s;
  return backing;
}

absl::Status CudaBacking::TakeKept(const std::vector<slab::SlabId>& present,
                                   Granules* kept, Progress progress) {
  const bool adopts = !kept->empty();
  uint32_t done = 0;
  for (slab::SlabId slab : present) {
    absl::Status s = adopts ? Take(slab, kept) : CreateSlab(slab);
    if (!s.ok()) return s;
    if (progress != nullptr) {
      progress(++done, static_cast<uint32_t>(present.size()));
    }
  }
  // Forgets slabs that were about to join the pool, or had just left it.
  for (const auto& [granule, descriptor] : *kept) {
    if (keeper_) keeper_->forget(granule);
  }
  return absl::OkStatus();
}

CudaBacking::CudaBacking(const driver::Driver& driver, driver::CUdevice device,
                         const slab::PoolGeometry& geometry,
                         driver::Context context, driver::Reservation range,
                         absl::StatusOr<Nvml> nvml,
                         absl::optional<Keeper> keeper,
                         MpsWork::Terminate terminate)
    : driver_(driver),
      device_(device),
      geometry_(geometry),
      nvml_(std::move(nvml)),
      keeper_(std::move(keeper)),
      mps_(terminate != nullptr ? std::move(terminate)
                                : [](pid_t, pid_t) { return false; }),
      context_(std::move(context)),
      range_(std::move(range)),
      slabs_(geometry.slab_count) {}

CudaBacking::~CudaBacking() {
  // A fill still writes through the mappings, so they must outlive it.
  if (stream_ != nullptr) {
    driver_.call().cuStreamSynchronize(stream_);
    driver_.call().cuStreamDestroy_v2(stream_);
  }
  for (const Fill& fill : fills_) driver_.call().cuEventDestroy_v2(fill.event);
}

void CudaBacking::EnterThread() { context_.MakeCurrent(); }

driver::CUdeviceptr CudaBacking::AddressOf(slab::SlabId slab) const {
  return range_.address() + slab::Number(slab) * geometry_.slab_bytes();
}

// Maps the next granule of the slab.
absl::Status CudaBacking::Add(SlabMemory* memory, slab::SlabId slab,
                              driver::Granule granule) const {
  absl::StatusOr<driver::Mapping> mapping = driver::Mapping::Create(
      driver_,
      AddressOf(slab) + memory->granules.size() * geometry_.granule_bytes,
      granule);
  if (!mapping.ok()) return mapping.status();
  memory->granules.push_back(std::move(granule));
  memory->mappings.push_back(*std::move(mapping));
  return absl::OkStatus();
}

absl::Status CudaBacking::AllowAccess(slab::SlabId slab) const {
  return driver::AllowReadWrite(driver_, device_, AddressOf(slab),
                                geometry_.slab_bytes());
}

absl::StatusOr<CudaBacking::SlabMemory> CudaBacking::MakeMemory(
    slab::SlabId slab) const {
  SlabMemory memory;
  for (uint32_t i = 0; i < geometry_.granules_per_slab; ++i) {
    absl::StatusOr<driver::Granule> granule =
        driver::Granule::Create(driver_, device_, geometry_.granule_bytes);
    if (!granule.ok()) return granule.status();
    absl::StatusOr<driver::Descriptor> descriptor = granule->Export();
    if (!descriptor.ok()) return descriptor.status();
    absl::Status s = absl::OkStatus();
    if (keeper_) s = keeper_->keep(FirstOf(slab) + i, descriptor->get());
    if (s.ok()) s = Add(&memory, slab, *std::move(granule));
    if (!s.ok()) return s;
    memory.descriptors.push_back(*std::move(descriptor));
  }
  absl::Status s = AllowAccess(slab);
  if (!s.ok()) return s;
  return memory;
}

absl::Status CudaBacking::Take(slab::SlabId slab, Granules* kept) {
  SlabMemory memory;
  for (uint32_t i = 0; i < geometry_.granules_per_slab; ++i) {
    const auto found = kept->find(FirstOf(slab) + i);
    if (found == kept->end()) {
      return absl::DataLossError(absl::StrCat("granule ", FirstOf(slab) + i,
                                              " of the pool was not kept"));
    }
    memory.descriptors.push_back(std::move(found->second));
    kept->erase(found);
  }
  slabs_[slab::Number(slab)] = std::move(memory);
  return absl::OkStatus();
}

absl::Status CudaBacking::MapKept(slab::SlabId slab) {
  const SlabMemory& kept = slabs_[slab::Number(slab)];
  if (!kept.mappings.empty()) return absl::OkStatus();
  SlabMemory memory;
  for (const driver::Descriptor& descriptor : kept.descriptors) {
    absl::StatusOr<driver::Granule> granule = driver::Granule::Import(
        driver_, descriptor.get(), geometry_.granule_bytes);
    if (!granule.ok()) return granule.status();
    absl::Status s = Add(&memory, slab, *std::move(granule));
    if (!s.ok()) return s;
  }
  absl::Status s = AllowAccess(slab);
  if (!s.ok()) return s;
  memory.descriptors = std::move(slabs_[slab::Number(slab)].descriptors);
  slabs_[slab::Number(slab)] = std::move(memory);
  return absl::OkStatus();
}

void CudaBacking::Forget(slab::SlabId slab) const {
  if (!keeper_) return;
  for (uint32_t i = 0; i < geometry_.granules_per_slab; ++i) {
    keeper_->forget(FirstOf(slab) + i);
  }
}

absl::Status CudaBacking::CreateSlab(slab::SlabId slab) {
  absl::StatusOr<SlabMemory> memory = MakeMemory(slab);
  if (!memory.ok()) {
    Forget(slab);
    return memory.status();
  }
  slabs_[slab::Number(slab)] = *std::move(memory);
  return absl::OkStatus();
}

void CudaBacking::DestroySlab(slab::SlabId slab) {
  Forget(slab);
  SlabMemory& memory = slabs_[slab::Number(slab)];
  memory.mappings.clear();
  memory.granules.clear();
  memory.descriptors.clear();
}

absl::Status CudaBacking::CreateStream() {
  return ToStatus(
      driver_.call(),
      driver_.call().cuStreamCreate(&stream_, driver::CU_STREAM_NON_BLOCKING),
      "cuStreamCreate");
}

absl::StatusOr<driver::Descriptor> CudaBacking::Export(uint32_t index) {
  const uint32_t per_slab = geometry_.granules_per_slab;
  const SlabMemory& memory = slabs_[index / per_slab];
  driver::Descriptor copy(
      fcntl(memory.descriptors[index % per_slab].get(), F_DUPFD_CLOEXEC, 0));
  if (copy.valid()) return copy;
  return base::ErrnoStatus("cannot copy a descriptor",
                           absl::StatusCode::kResourceExhausted);
}

absl::StatusOr<driver::CUevent> CudaBacking::RecordEvent() {
  const driver::EntryPoints& call = driver_.call();
  driver::CUevent event = nullptr;
  absl::Status s = ToStatus(
      call, call.cuEventCreate(&event, driver::CU_EVENT_DISABLE_TIMING),
      "cuEventCreate");
  if (!s.ok()) return s;
  s = ToStatus(call, call.cuEventRecord(event, stream_), "cuEventRecord");
  if (s.ok()) return event;
  call.cuEventDestroy_v2(event);
  return s;
}

absl::Status CudaBacking::StartZero(slab::SlabId slab) {
  const driver::EntryPoints& call = driver_.call();
  absl::Status s = MapKept(slab);
  if (!s.ok()) return Failed(s);
  // Slabs are multiples of 2 MiB, so 32-bit words fill them exactly.
  s = ToStatus(call,
               call.cuMemsetD32Async(AddressOf(slab), 0,
                                     geometry_.slab_bytes() / 4, stream_),
               absl::StrCat("cuMemsetD32Async(slab ", slab::Number(slab), ")"));
  if (!s.ok()) return Failed(s);
  absl::StatusOr<driver::CUevent> event = RecordEvent();
  if (!event.ok()) return Failed(event.status());
  fills_.push_back({slab, *event});
  return absl::OkStatus();
}

// After a fault of the device, every call on the context fails, even a harmless
// query. The query thus distinguishes such a fault from an error after which a
// call may succeed later.
absl::Status CudaBacking::Failed(const absl::Status& s) {
  const driver::EntryPoints& call = driver_.call();
  const driver::CUresult state = call.cuStreamQuery(stream_);
  if (state != driver::CUDA_SUCCESS && state != driver::CUDA_ERROR_NOT_READY) {
    lost_ = ToStatus(call, state, "the device is lost");
  }
  return s;
}

absl::StatusOr<std::vector<slab::SlabId>> CudaBacking::TakeZeroed() {
  const driver::EntryPoints& call = driver_.call();
  if (!lost_.ok()) return lost_;
  std::vector<slab::SlabId> done;
  while (!fills_.empty()) {
    const driver::CUresult result = call.cuEventQuery(fills_.front().event);
    if (result == driver::CUDA_ERROR_NOT_READY) break;
    if (result != driver::CUDA_SUCCESS) {
      // Reports the fills that have completed; the next call fails.
      if (!done.empty()) break;
      return ToStatus(call, result, "zero fill");
    }
    call.cuEventDestroy_v2(fills_.front().event);
    done.push_back(fills_.front().slab);
    fills_.pop_front();
  }
  return done;
}

absl::StatusOr<uint64_t> CudaBacking::FreeBytes() {
  return driver::FreeBytes(driver_);
}

absl::StatusOr<std::vector<pid_t>> CudaBacking::DevicePids(
    const std::vector<pid_t>& awaited) {
  if (!nvml_.ok()) return nvml_.status();
  const absl::StatusOr<DeviceProcesses> listed = nvml_->Processes();
  if (!listed.ok()) return listed.status();
  mps_.Saw(*listed);
  std::vector<pid_t> pids = listed->All();
  const std::vector<pid_t> working = mps_.StillAtWork(*listed, awaited);
  pids.insert(pids.end(), working.begin(), working.end());
  return pids;
}

void CudaBacking::NoteProcesses() {
  if (!nvml_.ok()) return;
  const absl::StatusOr<DeviceProcesses> listed = nvml_->Processes();
  if (listed.ok()) mps_.Saw(*listed);
}

uint64_t CudaBacking::MemoryErrors() {
  return nvml_.ok() ? nvml_->MemoryErrors() : 0;
}

}  // namespace fineserve::backing

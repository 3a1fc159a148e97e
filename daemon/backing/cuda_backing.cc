#include "daemon/backing/cuda_backing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/driver/status.h"

namespace fineserve::backing {

using driver::ToStatus;

absl::StatusOr<std::unique_ptr<CudaBacking>> CudaBacking::Create(
    const driver::Driver& driver, const Device& device,
    const slab::PoolGeometry& geometry, absl::StatusOr<Nvml> nvml,
    Progress progress) {
  absl::StatusOr<driver::Context> context =
      driver::Context::Retain(driver, device.ordinal);
  if (!context.ok()) return context.status();
  absl::StatusOr<driver::Reservation> range =
      driver::Reservation::Create(driver, geometry.pool_bytes());
  if (!range.ok()) return range.status();
  std::unique_ptr<CudaBacking> backing(
      new CudaBacking(driver, geometry, *std::move(context), *std::move(range),
                      std::move(nvml)));
  absl::Status s = backing->CreateGranules(device.ordinal, progress);
  if (!s.ok()) return s;
  s = backing->CreateStream();
  if (!s.ok()) return s;
  return backing;
}

CudaBacking::CudaBacking(const driver::Driver& driver,
                         const slab::PoolGeometry& geometry,
                         driver::Context context, driver::Reservation range,
                         absl::StatusOr<Nvml> nvml)
    : driver_(driver),
      geometry_(geometry),
      nvml_(std::move(nvml)),
      context_(std::move(context)),
      range_(std::move(range)) {}

CudaBacking::~CudaBacking() {
  // The mappings must not go while a fill still writes through them.
  if (stream_ != nullptr) {
    driver_.call().cuStreamSynchronize(stream_);
    driver_.call().cuStreamDestroy_v2(stream_);
  }
  for (const Fill& fill : fills_) driver_.call().cuEventDestroy_v2(fill.event);
}

absl::Status CudaBacking::CreateGranules(driver::CUdevice device,
                                         Progress progress) {
  const uint32_t count = geometry_.granule_count();
  granules_.reserve(count);
  mappings_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    absl::StatusOr<driver::Granule> granule =
        driver::Granule::Create(driver_, device, geometry_.granule_bytes);
    if (!granule.ok()) return granule.status();
    absl::StatusOr<driver::Mapping> mapping = driver::Mapping::Create(
        driver_, range_.address() + i * geometry_.granule_bytes, *granule);
    if (!mapping.ok()) return mapping.status();
    granules_.push_back(*std::move(granule));
    mappings_.push_back(*std::move(mapping));
    if (progress != nullptr) progress(i + 1, count);
  }
  return driver::AllowReadWrite(driver_, device, range_.address(),
                                range_.bytes());
}

absl::Status CudaBacking::CreateStream() {
  return ToStatus(
      driver_.call(),
      driver_.call().cuStreamCreate(&stream_, driver::CU_STREAM_NON_BLOCKING),
      "cuStreamCreate");
}

absl::StatusOr<driver::Descriptor> CudaBacking::Export(uint32_t index) {
  return granules_[index].Export();
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
  const driver::CUdeviceptr address =
      range_.address() + slab::Number(slab) * geometry_.slab_bytes();
  // 32-bit words: no slower on any device, and slabs are multiples of 2 MiB.
  absl::Status s = ToStatus(
      call,
      call.cuMemsetD32Async(address, 0, geometry_.slab_bytes() / 4, stream_),
      absl::StrCat("cuMemsetD32Async(slab ", slab::Number(slab), ")"));
  if (!s.ok()) return s;
  absl::StatusOr<driver::CUevent> event = RecordEvent();
  if (!event.ok()) return event.status();
  fills_.push_back({slab, *event});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<slab::SlabId>> CudaBacking::TakeZeroed() {
  const driver::EntryPoints& call = driver_.call();
  std::vector<slab::SlabId> done;
  while (!fills_.empty()) {
    const driver::CUresult result = call.cuEventQuery(fills_.front().event);
    if (result == driver::CUDA_ERROR_NOT_READY) break;
    if (result != driver::CUDA_SUCCESS) {
      // What completed before counts; the next call reports the error.
      if (!done.empty()) break;
      return ToStatus(call, result, "zero fill");
    }
    call.cuEventDestroy_v2(fills_.front().event);
    done.push_back(fills_.front().slab);
    fills_.pop_front();
  }
  return done;
}

absl::StatusOr<std::vector<pid_t>> CudaBacking::DevicePids() {
  if (!nvml_.ok()) return nvml_.status();
  return nvml_->ComputePids();
}

}  // namespace fineserve::backing

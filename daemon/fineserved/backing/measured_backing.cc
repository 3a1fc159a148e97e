#include "daemon/fineserved/backing/measured_backing.h"

#include <utility>

#include "daemon/base/clock/clock.h"

namespace fineserve::backing {

using metrics::DriverCall;

template <typename Call>
auto MeasuredBacking::Measured(DriverCall which, Call call) {
  Calls& calls = calls_[static_cast<size_t>(which)];
  // Measures the device's real time, which no test needs to set.
  const RealClock clock;
  const uint64_t began_ns = clock.NowNs();
  auto result = call();
  calls.times.Add(clock.NowNs() - began_ns);
  // Relaxed: a statistic, which publishes no other data.
  if (!result.ok()) calls.errors.fetch_add(1, std::memory_order_relaxed);
  return result;
}

absl::Status MeasuredBacking::CreateSlab(slab::SlabId slab) {
  return Measured(DriverCall::kCreate,
                  [&] { return backing_->CreateSlab(slab); });
}

void MeasuredBacking::DestroySlab(slab::SlabId slab) {
  Measured(DriverCall::kDestroy, [&] {
    backing_->DestroySlab(slab);
    return absl::OkStatus();
  }).IgnoreError();
}

absl::StatusOr<driver::Descriptor> MeasuredBacking::Export(uint32_t index) {
  return Measured(DriverCall::kExport, [&] { return backing_->Export(index); });
}

absl::Status MeasuredBacking::StartZero(slab::SlabId slab) {
  return Measured(DriverCall::kZero, [&] { return backing_->StartZero(slab); });
}

absl::StatusOr<std::vector<slab::SlabId>> MeasuredBacking::TakeZeroed() {
  return Measured(DriverCall::kPoll, [&] { return backing_->TakeZeroed(); });
}

absl::StatusOr<uint64_t> MeasuredBacking::FreeBytes() {
  return Measured(DriverCall::kMemory, [&] { return backing_->FreeBytes(); });
}

absl::StatusOr<std::vector<pid_t>> MeasuredBacking::DevicePids(
    const std::vector<pid_t>& awaited) {
  return Measured(DriverCall::kList,
                  [&] { return backing_->DevicePids(awaited); });
}

metrics::DriverFigures MeasuredBacking::Figures() const {
  metrics::DriverFigures figures;
  for (size_t i = 0; i < figures.size(); ++i) {
    figures[i].times = calls_[i].times.Read();
    figures[i].errors = calls_[i].errors.load(std::memory_order_relaxed);
  }
  return figures;
}

}  // namespace fineserve::backing

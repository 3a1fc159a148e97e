#include "daemon/server/start_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/abi/byte_size.h"
#include "kernels/driver/driver_handles.h"
#include "kernels/driver/status.h"

namespace fineserve::server {
namespace {

absl::StatusOr<uint64_t> FreeBytes(const driver::Driver& driver,
                                   driver::CUdevice device) {
  absl::StatusOr<driver::Context> context =
      driver::Context::Retain(driver, device);
  if (!context.ok()) return context.status();
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  absl::Status s = driver::ToStatus(
      driver.call(), driver.call().cuMemGetInfo_v2(&free_bytes, &total_bytes),
      "cuMemGetInfo");
  if (!s.ok()) return s;
  return free_bytes;
}

}  // namespace

absl::StatusOr<StartPlan> MakeStartPlan(const config::Config& config,
                                        const backing::DeviceChoice& choice) {
  absl::StatusOr<driver::Driver> driver =
      driver::Driver::Load(choice.DriverLibrary());
  if (!driver.ok()) return driver.status();
  absl::StatusOr<backing::Device> device = backing::FindDevice(*driver, choice);
  if (!device.ok()) return device.status();
  absl::StatusOr<slab::PoolGeometry> geometry = slab::ChooseGeometry(
      {std::max(config.pool_bytes, config.max_pool_bytes), config.planes,
       config.slab_bytes, device->granularity, slab::kMaxHandles});
  if (!geometry.ok()) return geometry.status();
  const uint64_t slabs = config.pool_bytes / geometry->slab_bytes();
  if (slabs == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pool of ", abi::SizeText(config.pool_bytes),
                     " holds no slab; the smallest slab is ",
                     abi::SizeText(geometry->slab_bytes())));
  }
  absl::StatusOr<uint64_t> free_bytes = FreeBytes(*driver, device->ordinal);
  if (!free_bytes.ok()) return free_bytes.status();
  return StartPlan{*driver, *device, *geometry, static_cast<uint32_t>(slabs),
                   *free_bytes};
}

}  // namespace fineserve::server

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

// Of a pool of size "auto". It is no larger than [pool] max, if that is set.
absl::StatusOr<uint64_t> AutoPoolBytes(const config::Config& config,
                                       uint64_t free_bytes, StartPlan* plan) {
  const uint64_t reserve = config::ReserveBytes(config.reserve, free_bytes);
  plan->choice =
      absl::StrCat(abi::SizeText(free_bytes), " free less a reserve of ",
                   abi::SizeText(reserve), " for weights and activations");
  const uint64_t left = free_bytes > reserve ? free_bytes - reserve : 0;
  const uint64_t slab =
      config.slab_bytes != 0 ? config.slab_bytes : slab::kDefaultSlabBytes;
  if (left < slab) {
    return absl::FailedPreconditionError(
        absl::StrCat("--pool auto: nothing is left for a pool (", plan->choice,
                     "); free memory of the GPU or give a smaller --reserve"));
  }
  if (config.max_pool_bytes == 0 || left <= config.max_pool_bytes) return left;
  absl::StrAppend(&plan->choice, ", at most ",
                  abi::SizeText(config.max_pool_bytes));
  return config.max_pool_bytes;
}

}  // namespace

absl::StatusOr<StartPlan> MakeStartPlan(const config::Config& config,
                                        const backing::DeviceChoice& choice) {
  absl::StatusOr<driver::Driver> driver =
      driver::Driver::Load(choice.DriverLibrary());
  if (!driver.ok()) return driver.status();
  absl::StatusOr<backing::Device> device = backing::FindDevice(*driver, choice);
  if (!device.ok()) return device.status();
  absl::StatusOr<uint64_t> free_bytes = FreeBytes(*driver, device->ordinal);
  if (!free_bytes.ok()) return free_bytes.status();
  StartPlan plan{*driver, *device, {}, 0, *free_bytes, ""};
  absl::StatusOr<uint64_t> pool_bytes = config.pool.bytes;
  if (config.pool.is_auto)
    pool_bytes = AutoPoolBytes(config, *free_bytes, &plan);
  if (!pool_bytes.ok()) return pool_bytes.status();
  absl::StatusOr<slab::PoolGeometry> geometry = slab::ChooseGeometry(
      {std::max(*pool_bytes, config.max_pool_bytes), config.planes,
       config.slab_bytes, device->granularity, slab::kMaxHandles});
  if (!geometry.ok()) return geometry.status();
  const uint64_t slabs = *pool_bytes / geometry->slab_bytes();
  if (slabs == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pool of ", abi::SizeText(*pool_bytes),
                     " holds no slab; the smallest slab is ",
                     abi::SizeText(geometry->slab_bytes())));
  }
  plan.geometry = *geometry;
  plan.slabs = static_cast<uint32_t>(slabs);
  return plan;
}

}  // namespace fineserve::server

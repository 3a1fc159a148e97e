#include "daemon/server/start_plan.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/abi/byte_size.h"
#include "daemon/abi/socket_path.h"
#include "daemon/server/kept_pool.h"
#include "kernels/driver/driver_handles.h"

namespace fineserve::server {
namespace {

absl::StatusOr<uint64_t> FreeBytes(const driver::Driver& driver,
                                   driver::CUdevice device) {
  absl::StatusOr<driver::Context> context =
      driver::Context::Retain(driver, device);
  if (!context.ok()) return context.status();
  return driver::FreeBytes(driver);
}

// Size of a pool of size "auto". It is no larger than [pool] max, if that is
// set.
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

// Limit on the pool's growth: for a pool of size "auto" all that the GPU has
// but for the headroom.
uint64_t MostBytes(const config::Config& config, const StartPlan& plan) {
  if (config.max_pool_bytes != 0 || !config.pool.is_auto) {
    return config.max_pool_bytes;
  }
  const uint64_t total = plan.device.total_bytes;
  const uint64_t headroom = config::HeadroomBytes(config.headroom, total);
  return total - std::min(total, headroom);
}

absl::StatusOr<StartPlan> PlanWithoutPool(const backing::DeviceChoice& choice) {
  absl::StatusOr<driver::Driver> driver =
      driver::Driver::Load(choice.DriverLibrary());
  if (!driver.ok()) return driver.status();
  absl::StatusOr<backing::Device> device = backing::FindDevice(*driver, choice);
  if (!device.ok()) return device.status();
  absl::StatusOr<uint64_t> free_bytes = FreeBytes(*driver, device->ordinal);
  if (!free_bytes.ok()) return free_bytes.status();
  return StartPlan{*driver, *device, {}, 0, *free_bytes, ""};
}

}  // namespace

absl::StatusOr<StartPlan> MakeStartPlan(const backing::DeviceChoice& choice,
                                        const abi::TableSnapshot& kept) {
  absl::StatusOr<StartPlan> plan = PlanWithoutPool(choice);
  if (!plan.ok()) return plan;
  if (memcmp(plan->device.uuid, kept.gpu_uuid, sizeof(kept.gpu_uuid)) != 0) {
    char gpu[41];
    abi::FormatGpuUuid(kept.gpu_uuid, gpu);
    return absl::InvalidArgumentError(absl::StrCat(
        "the pool that the former fineserved has left lies on ", gpu,
        ", not on the GPU that --gpu names; start it with --gpu ", gpu));
  }
  plan->geometry = IdentityOf(kept).geometry;
  for (const abi::SlabSnapshot& slab : kept.slabs) {
    plan->slabs += slab.word.state != abi::SlabState::kAbsent;
  }
  return plan;
}

absl::StatusOr<StartPlan> MakeStartPlan(const config::Config& config,
                                        const backing::DeviceChoice& choice) {
  absl::StatusOr<StartPlan> found = PlanWithoutPool(choice);
  if (!found.ok()) return found;
  StartPlan plan = *std::move(found);
  absl::StatusOr<uint64_t> pool_bytes = config.pool.bytes;
  if (config.pool.is_auto)
    pool_bytes = AutoPoolBytes(config, plan.free_bytes, &plan);
  if (!pool_bytes.ok()) return pool_bytes.status();
  absl::StatusOr<slab::PoolGeometry> geometry = slab::ChooseGeometry(
      {std::max(*pool_bytes, MostBytes(config, plan)), config.planes,
       config.slab_bytes, plan.device.granularity, slab::kMaxHandles});
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

#include "daemon/fineserved/start/start_plan.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/old_pool.h"
#include "daemon/contract/abi/socket_path.h"
#include "kernels/driver/driver_handles.h"

namespace fineserve::server {
namespace {

// Returns the size of a pool of size "auto". It is no larger than [pool] max,
// if that is set. If the pool of a former daemon still exists, the size may be
// 0: that pool's engines have their weights, and its memory comes to this pool
// as they end.
absl::StatusOr<uint64_t> AutoPoolBytes(const config::Config& config,
                                       StartPlan* plan) {
  const uint64_t free_bytes = plan->free_bytes;
  const uint64_t reserve = config::ReserveBytes(config.reserve, free_bytes);
  plan->choice =
      absl::StrCat(abi::SizeText(free_bytes), " free less a reserve of ",
                   abi::SizeText(reserve), " for weights and activations");
  const uint64_t left = free_bytes > reserve ? free_bytes - reserve : 0;
  const uint64_t slab =
      config.slab_bytes != 0 ? config.slab_bytes : slab::kDefaultSlabBytes;
  if (left < slab && plan->former_pools.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--pool auto: nothing is left for a pool (", plan->choice,
                     "); free memory of the GPU or give a smaller --reserve"));
  }
  if (config.max_pool_bytes == 0 || left <= config.max_pool_bytes) return left;
  absl::StrAppend(&plan->choice, ", at most ",
                  abi::SizeText(config.max_pool_bytes));
  return config.max_pool_bytes;
}

// Returns the size of a pool of a fixed size. If the pool of a former daemon
// still exists, this is the part that the former engines leave.
uint64_t FixedPoolBytes(const config::Config& config, uint64_t former_bytes,
                        StartPlan* plan) {
  const uint64_t bytes = config.pool.bytes;
  if (bytes <= plan->free_bytes || plan->former_pools.empty()) return bytes;
  plan->choice = absl::StrCat(
      abi::SizeText(bytes),
      " less what engines of a former daemon hold; SIGHUP makes it that large "
      "when they have ended");
  return std::min(bytes - std::min(bytes, former_bytes), plan->free_bytes);
}

// Returns the limit on the pool's growth: for a pool of size "auto", all of the
// GPU's memory except the headroom.
uint64_t MostBytes(const config::Config& config, const StartPlan& plan) {
  if (config.max_pool_bytes != 0 || !config.pool.is_auto) {
    return config.max_pool_bytes;
  }
  const uint64_t total = plan.device.total_bytes;
  const uint64_t headroom = config::HeadroomBytes(config.headroom, total);
  return total - std::min(total, headroom);
}

// A GPU without a pool, with a context on it.
struct Found {
  StartPlan plan;
  driver::Context context;
};

absl::StatusOr<Found> Find(const backing::DeviceChoice& choice) {
  absl::StatusOr<driver::Driver> driver =
      driver::Driver::Load(choice.DriverLibrary());
  if (!driver.ok()) {
    const std::string nodes = choice.emulated() ? "" : backing::NodeTrouble();
    return absl::Status(driver.status().code(),
                        absl::StrCat(driver.status().message(),
                                     nodes.empty() ? "" : "; ", nodes));
  }
  absl::StatusOr<backing::Device> device = backing::FindDevice(*driver, choice);
  if (!device.ok()) return device.status();
  absl::StatusOr<backing::Nvml> nvml =
      backing::Nvml::Load(choice.NvmlLibrary(), device->uuid);
  if (absl::IsFailedPrecondition(nvml.status())) return nvml.status();
  absl::StatusOr<driver::Context> context =
      driver::Context::Retain(*driver, device->ordinal);
  if (!context.ok()) return context.status();
  absl::StatusOr<uint64_t> free_bytes = driver::FreeBytes(*driver);
  if (!free_bytes.ok()) return free_bytes.status();
  return Found{{*driver, *device, {}, 0, *free_bytes, std::move(nvml), "", ""},
               *std::move(context)};
}

// Imports one granule of the pool as a sample for all of them, since they are
// equally old.
absl::Status CheckMemory(const driver::Driver& driver, const KeptPool& kept) {
  if (kept.granules.empty()) return absl::OkStatus();
  const absl::Status imported =
      driver::Granule::Import(driver, kept.granules.begin()->second.get(),
                              kept.state.granule_bytes)
          .status();
  if (imported.ok()) return imported;
  return absl::DataLossError(absl::StrCat(
      "the driver has lost the memory of the pool that the former fineserved "
      "has left (",
      imported.message(), ")"));
}

}  // namespace

absl::StatusOr<StartPlan> MakeStartPlan(const backing::DeviceChoice& choice,
                                        const KeptPool& kept) {
  const abi::TableSnapshot& state = kept.state;
  absl::StatusOr<Found> found = Find(choice);
  if (!found.ok()) return found.status();
  StartPlan plan = found->plan;
  if (memcmp(plan.device.uuid, state.gpu_uuid, sizeof(state.gpu_uuid)) != 0) {
    char gpu[41];
    abi::FormatGpuUuid(state.gpu_uuid, gpu);
    return absl::InvalidArgumentError(absl::StrCat(
        "the pool that the former fineserved has left is on ", gpu,
        ", not on the GPU that --gpu names; start it with --gpu ", gpu));
  }
  const absl::Status s = CheckMemory(plan.driver, kept);
  if (!s.ok()) return s;
  plan.geometry = IdentityOf(state).geometry;
  for (const abi::SlabSnapshot& slab : state.slabs) {
    plan.slabs += slab.word.state != abi::SlabState::kAbsent;
  }
  return plan;
}

absl::StatusOr<StartPlan> MakeStartPlan(const config::Config& config,
                                        const backing::DeviceChoice& choice) {
  absl::StatusOr<Found> found = Find(choice);
  if (!found.ok()) return found.status();
  StartPlan plan = found->plan;
  const std::vector<abi::OldPool> former = abi::FindOldPools(plan.device.uuid);
  plan.former_pools = abi::Describe(former);
  uint64_t former_bytes = 0;
  for (const abi::OldPool& pool : former) former_bytes += pool.bytes();
  const absl::StatusOr<uint64_t> pool_bytes =
      config.pool.is_auto ? AutoPoolBytes(config, &plan)
                          : FixedPoolBytes(config, former_bytes, &plan);
  if (!pool_bytes.ok()) return pool_bytes.status();
  absl::StatusOr<slab::PoolGeometry> geometry = slab::ChooseGeometry(
      {std::max({*pool_bytes, config.pool.bytes, MostBytes(config, plan)}),
       config.planes, config.slab_bytes, plan.device.granularity,
       slab::kMaxHandles});
  if (!geometry.ok()) return geometry.status();
  uint64_t slabs = *pool_bytes / geometry->slab_bytes();
  if (!former.empty()) slabs = std::max<uint64_t>(slabs, 1);
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

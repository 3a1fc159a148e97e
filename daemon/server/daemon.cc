#include "daemon/server/daemon.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/abi/byte_size.h"
#include "daemon/abi/socket_path.h"
#include "daemon/log/log.h"
#include "daemon/server/epoch.h"
#include "daemon/server/old_pool.h"
#include "kernels/driver/status.h"

namespace fineserve::server {
namespace {

const RealClock kClock;

// A zero fill of a slab takes 10 µs to some ms.
constexpr uint64_t kFillPollUs = 1000;

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

slab::TableIdentity IdentityOf(const Plan& plan) {
  slab::TableIdentity identity;
  identity.epoch = RandomEpoch();
  identity.flags = plan.device.emulated ? abi::kTableEmulatedDevice : 0;
  memcpy(identity.gpu_uuid, plan.device.uuid, sizeof(identity.gpu_uuid));
  identity.gpu_name = plan.device.name;
  identity.geometry = plan.geometry;
  return identity;
}

// On a terminal only: a log does not want it.
void ShowProgress(uint32_t done, uint32_t of) {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  if (!terminal || (done % 8 != 0 && done != of)) return;
  fprintf(stderr, "\rcreating slabs: %u of %u%s", done, of,
          done == of ? "\n" : "");
}

absl::Status ExplainFailure(const absl::Status& s, const Plan& plan) {
  if (!absl::IsResourceExhausted(s)) return s;
  const std::string old_pool = DescribeOldPool(plan.device.uuid);
  return absl::ResourceExhaustedError(absl::StrCat(
      "a pool of ", abi::SizeText(plan.geometry.pool_bytes()),
      " does not fit: the GPU had ", abi::SizeText(plan.free_bytes), " free",
      old_pool.empty() ? "; give a smaller --pool" : "; ", old_pool, " (",
      s.message(), ")"));
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const config::Config& config,
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
                     " holds no slab; the least is ",
                     abi::SizeText(geometry->slab_bytes())));
  }
  absl::StatusOr<uint64_t> free_bytes = FreeBytes(*driver, device->ordinal);
  if (!free_bytes.ok()) return free_bytes.status();
  return Plan{*driver, *device, *geometry, static_cast<uint32_t>(slabs),
              *free_bytes};
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(
    const Plan& plan, const backing::DeviceChoice& choice,
    config::Config config, Reload reload) {
  absl::StatusOr<Endpoint> endpoint =
      Endpoint::Claim(config.runtime_dir, plan.device.uuid);
  if (!endpoint.ok()) return endpoint.status();
  const std::string old_pool = DescribeOldPool(plan.device.uuid);
  if (!old_pool.empty()) log::Warning("{}", old_pool);
  absl::StatusOr<backing::Nvml> nvml =
      backing::Nvml::Load(choice.NvmlLibrary(), plan.device.uuid);
  if (!nvml.ok()) {
    log::Warning("{}; slabs of dead engines will stay quarantined",
                 std::string(nvml.status().message()));
  }
  absl::StatusOr<std::unique_ptr<backing::CudaBacking>> backing =
      backing::CudaBacking::Create(plan.driver, plan.device, plan.geometry,
                                   plan.slabs, std::move(nvml), ShowProgress);
  if (!backing.ok()) return ExplainFailure(backing.status(), plan);
  const slab::TableIdentity identity = IdentityOf(plan);
  absl::StatusOr<std::unique_ptr<slab::TableWriter>> table =
      slab::TableWriter::Create(identity, &kClock);
  if (!table.ok()) return table.status();
  std::unique_ptr<Daemon> daemon(
      new Daemon(std::move(config), std::move(reload), *std::move(endpoint),
                 *std::move(backing), plan.slabs, *std::move(table), identity));
  absl::StatusOr<driver::Descriptor> listener = daemon->endpoint_.Listen();
  if (!listener.ok()) return listener.status();
  daemon->sockets_.Listen(*std::move(listener));
  char gpu[41];
  abi::FormatGpuUuid(plan.device.uuid, gpu);
  daemon->gpu_ = gpu;
  const absl::Status fleet_set = daemon->SetFleet();
  if (!fleet_set.ok()) return fleet_set;
  daemon->pool_.Start();
  return daemon;
}

Daemon::Daemon(config::Config config, Reload reload, Endpoint endpoint,
               std::unique_ptr<backing::Backing> backing, uint32_t slabs,
               std::unique_ptr<slab::TableWriter> table,
               const slab::TableIdentity& identity)
    : config_(std::move(config)),
      reload_(std::move(reload)),
      endpoint_(std::move(endpoint)),
      backing_(std::move(backing)),
      table_(std::move(table)),
      pool_(backing_.get(), slabs, table_.get(), &kClock),
      sockets_(&loop_, &pool_, table_.get(), identity, &kClock,
               [this](const std::string& engine_name) {
                 config::EngineRule rule = config::RuleOf(config_, engine_name);
                 return SocketServer::KvRules{
                     std::move(rule.kv_sizes),
                     config::RulesFor(config_, engine_name),
                     {rule.floor_bytes, rule.cap_bytes}};
               }) {}

void Daemon::Serve() {
  const auto stop = [this] { loop_.Stop(); };
  const auto on_term = loop_.OnSignal(SIGTERM, stop);
  const auto on_int = loop_.OnSignal(SIGINT, stop);
  const auto on_hup = loop_.OnSignal(SIGHUP, [this] { ReadConfigAgain(); });
  const auto after_each = loop_.AfterEach([this] { Settle(); });
  Settle();
  log::Info("serving {} on {}", slab::Describe(backing_->geometry()),
            endpoint_.socket_path());
  sd_notify(0, "READY=1");
  loop_.Run();
  sd_notify(0, "STOPPING=1");
  log::Info("ending; slabs that stay mapped: {}", pool_.DescribeHolders());
}

absl::Status Daemon::SetFleet() {
  if (!config_.fleet) {
    admission_.reset();
    return absl::OkStatus();
  }
  if (admission_ != nullptr) return admission_->SetFleet(*config_.fleet);
  absl::StatusOr<std::unique_ptr<AdmissionServer>> admission =
      AdmissionServer::Create(*config_.fleet, gpu_,
                              wire::AdmissionPath(endpoint_.socket_path()),
                              &pool_, &kClock, &loop_);
  if (!admission.ok()) return admission.status();
  admission_ = *std::move(admission);
  return absl::OkStatus();
}

void Daemon::Settle() {
  sockets_.Deliver(pool_.Poll());
  if (admission_ != nullptr) admission_->Settle();
  sockets_.Expire(kClock.NowNs());
  uint64_t period_us = 0;
  if (pool_.quarantining() || sockets_.waiting() || pool_.resizing() ||
      pool_.views().expecting()) {
    period_us = PoolService::kPidCheckNs / 1000;
  }
  if (pool_.filling()) period_us = kFillPollUs;
  if (period_us == poll_period_us_) return;
  poll_period_us_ = period_us;
  // The timer's own callback has nothing to do: Settle runs after each round.
  poll_timer_ = period_us == 0 ? nullptr : loop_.Every(period_us, [] {});
}

void Daemon::Resize(uint64_t pool_bytes) {
  const auto slabs = static_cast<uint32_t>(std::min<uint64_t>(
      pool_bytes / backing_->geometry().slab_bytes(), UINT32_MAX));
  if (slabs == pool_.wanted_slabs()) return;
  const absl::Status s = pool_.Resize(slabs);
  if (s.ok()) {
    log::Info("the pool goes from {} to {} slabs", pool_.present_slabs(),
              slabs);
  } else {
    log::Error("pool size kept: {}", std::string(s.message()));
  }
}

void Daemon::ReadConfigAgain() {
  sd_notify(0, "RELOADING=1");
  absl::StatusOr<config::Config> config = reload_();
  if (!config.ok()) {
    log::Error("configuration kept as it was: {}",
               std::string(config.status().message()));
  } else {
    // Also if the file says the same again: it may have been refused before.
    Resize(config->pool_bytes);
    if (config->max_pool_bytes != config_.max_pool_bytes ||
        config->slab_bytes != config_.slab_bytes ||
        config->planes != config_.planes || config->gpu != config_.gpu ||
        config->runtime_dir != config_.runtime_dir) {
      log::Warning(
          "gpu, runtime_dir and the pool's max, slab and planes change with a "
          "restart only");
    }
    config_ = *std::move(config);
    const absl::Status fleet_set = SetFleet();
    if (!fleet_set.ok()) {
      log::Error("fleet kept as it was: {}", std::string(fleet_set.message()));
    }
    log::SetLevel(config_.log_level);
    log::Info("configuration read again: {} engine rules, {} frame rules",
              config_.engines.size(),
              config_.rules.size() + config_.shipped_rules.size());
  }
  sd_notify(0, "READY=1");
}

}  // namespace fineserve::server

#include "daemon/fineserved/start/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/base/clock/clock.h"
#include "daemon/base/descriptor_store.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/old_pool.h"
#include "daemon/contract/abi/process_start.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/finding/engine_sights.h"
#include "daemon/fineserved/backing/cuda_backing.h"
#include "daemon/fineserved/backing/device_thread.h"
#include "daemon/fineserved/backing/measured_backing.h"
#include "daemon/fineserved/eviction/other_daemons.h"
#include "daemon/fineserved/eviction/replica_look.h"
#include "daemon/fineserved/pool_service/measured_pool.h"
#include "daemon/fineserved/pool_service/pool_kv.h"
#include "daemon/fineserved/pool_service/pool_service.h"
#include "daemon/fineserved/pool_service/pool_sizing.h"
#include "daemon/fineserved/server/admission_server.h"
#include "daemon/fineserved/server/endpoint.h"
#include "daemon/fineserved/server/epoch.h"
#include "daemon/fineserved/server/event_loop.h"
#include "daemon/fineserved/server/leader_server.h"
#include "daemon/fineserved/server/metrics_server.h"
#include "daemon/fineserved/server/socket_server.h"
#include "daemon/fineserved/start/daemon_fleet.h"
#include "daemon/fineserved/start/gpu_claim.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/door/door.h"
#include "daemon/pool/table_writer.h"

namespace fineserve::server {
namespace {

const RealClock kClock;

// Interval between rounds while engines wait for each other's slabs. A round
// takes some µs.
constexpr uint64_t kRestlessPollUs = 10'000;
// Interval between checks of the blocks in use next to an engine that spans
// GPUs, on which another daemon's admission relies. Heuristic.
constexpr uint64_t kGroupPollUs = 50'000;
// Pause between two engines that leave for others' KV, so that the pool grows
// by the first engine's memory before the second one leaves.
constexpr uint64_t kKvPauseNs = 1'000'000'000;
constexpr uint64_t kAheadPauseNs = 1'000'000'000;

// 0: none.
void SetInterval(uint64_t interval_us, EventAlarm* alarm) {
  if (interval_us == 0) {
    alarm->Set(UINT64_MAX);
  } else if (!alarm->is_set()) {
    alarm->Set(kClock.NowNs() / 1000 + interval_us);
  }
}

slab::TableIdentity NewIdentity(const StartPlan& plan) {
  slab::TableIdentity identity;
  identity.epoch = RandomEpoch();
  identity.flags = plan.device.emulated ? abi::kTableEmulatedDevice : 0;
  if (holder::DescriptorStore::Exists()) identity.flags |= abi::kTableIsKept;
  memcpy(identity.gpu_uuid, plan.device.uuid, sizeof(identity.gpu_uuid));
  identity.gpu_name = plan.device.name;
  identity.geometry = plan.geometry;
  return identity;
}

// Prints on a terminal only, to keep this out of logs.
void ShowProgress(uint32_t done, uint32_t of) {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  if (!terminal || (done % 8 != 0 && done != of)) return;
  fprintf(stderr, "\rcreating slabs: %u of %u%s", done, of,
          done == of ? "\n" : "");
}

absl::Status ExplainFailure(const absl::Status& s, const StartPlan& plan) {
  if (!absl::IsResourceExhausted(s)) return s;
  return absl::ResourceExhaustedError(absl::StrCat(
      "a pool of ", abi::SizeText(plan.slabs * plan.geometry.slab_bytes()),
      " does not fit: the GPU had ", abi::SizeText(plan.free_bytes), " free; ",
      plan.former_pools.empty() ? "give a smaller --pool" : plan.former_pools,
      " (", s.message(), ")"));
}

// A pool that a daemon begins to serve.
struct Pool {
  std::unique_ptr<backing::Backing> backing;
  std::unique_ptr<slab::TableWriter> table;
  slab::PoolState state;
  PoolService::Scoreboards scoreboards;
};

absl::optional<backing::CudaBacking::Keeper> GranuleKeeper() {
  using holder::DescriptorStore;
  if (!DescriptorStore::Exists()) return absl::nullopt;
  return backing::CudaBacking::Keeper{
      [](uint32_t granule, int descriptor) {
        return DescriptorStore::Store(GranuleName(granule), descriptor);
      },
      [](uint32_t granule) { DescriptorStore::Remove(GranuleName(granule)); }};
}

// Asks the MPS servers whose clients engines may be: the server that the
// environment names (or the machine's), and the server of fsctl up.
backing::MpsWork::Terminate MpsTerminator(const config::Config& config) {
  std::string folder = config.runtime_dir;
  char path[abi::kPathBytes];
  if (folder.empty() && abi::RuntimeFolder(path)) folder = path;
  return [folder](pid_t server, pid_t client) {
    return backing::TerminateMpsClient({"", folder + "/mps"}, server, client);
  };
}

absl::StatusOr<Pool> MakePool(const StartPlan& plan,
                              const config::Config& config,
                              const slab::TableIdentity& identity) {
  if (!plan.former_pools.empty()) log::Warning("{}", plan.former_pools);
  auto backing = backing::CudaBacking::Create(
      plan.driver, plan.device, plan.geometry, slab::FirstSlabs(plan.slabs),
      plan.nvml, {}, GranuleKeeper(), ShowProgress, MpsTerminator(config));
  if (!backing.ok()) return ExplainFailure(backing.status(), plan);
  auto table = slab::TableWriter::Create(identity, &kClock);
  if (!table.ok()) return table.status();
  return Pool{*std::move(backing),
              *std::move(table),
              slab::PoolState(plan.geometry, plan.slabs),
              {}};
}

absl::StatusOr<Pool> TakeOver(const StartPlan& plan,
                              const config::Config& config, KeptPool kept) {
  absl::StatusOr<slab::PoolState> state =
      slab::PoolState::Adopt(kept.state, kClock.NowNs());
  if (!state.ok()) return state.status();
  auto backing = backing::CudaBacking::Create(
      plan.driver, plan.device, plan.geometry, state->PresentSlabs(), plan.nvml,
      std::move(kept.granules), GranuleKeeper(), ShowProgress,
      MpsTerminator(config));
  if (!backing.ok()) return backing.status();
  auto table = slab::TableWriter::Adopt(std::move(kept.table), &kClock);
  if (!table.ok()) return table.status();
  log::Info("taking over the pool of pid {}: {}", kept.state.daemon_pid,
            state->DescribeHolders());
  return Pool{*std::move(backing), *std::move(table), *std::move(state),
              std::move(kept.scoreboards)};
}

std::shared_ptr<const metrics::Identity> IdentityForMetrics(
    const slab::TableIdentity& pool) {
  char gpu[41];
  abi::FormatGpuUuid(pool.gpu_uuid, gpu);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::make_shared<const metrics::Identity>(metrics::Identity{
      FINESERVE_VERSION, abi::kAbiVersion, gpu, pool.gpu_name, pool.epoch,
      std::chrono::duration<double>(now).count()});
}

// True if any engine may leave. All engines of the file count, since an engine
// for another GPU may have ranks here.
bool AnyMayLeave(const config::Config& config) {
  return config.fleet &&
         std::any_of(config.fleet->engines.begin(), config.fleet->engines.end(),
                     [](const config::FleetEngine& engine) {
                       return engine.may_evict;
                     });
}

// One running fineserved: owns all its members and drives them from one thread.
class Daemon {
 public:
  // Claims the GPU, and either creates the pool and starts to zero it, or takes
  // over the kept pool.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(
      const StartPlan& plan, config::Config config, Reload reload,
      absl::optional<KeptPool> kept);

  // Serves until SIGTERM or SIGINT. An error says that the device is lost,
  // which only a new process may be able to use again.
  absl::Status Serve();

 private:
  Daemon(config::Config config, Reload reload, Endpoint endpoint, Pool pool,
         const slab::TableIdentity& identity);
  // Where evicted memory goes.
  void OpenStore(const StartPlan& plan);
  void LookForReplicas(const StartPlan& plan);
  absl::Status Listen(driver::Descriptor kept_listener);
  // Stores what the next daemon needs in addition to the granules.
  absl::Status StoreTable();
  // Logs it when the parent that keeps the pool for the next daemon ends.
  void WatchKeeper();
  // Begins to admit requests for the configuration's fleet, if it names one.
  absl::Status SetFleet();
  // Serves metrics where the configuration says, if anywhere.
  absl::Status SetMetrics();
  metrics::Snapshot Measure() const;
  // Begins to lead, or to wait for the lead, if the fleet has a [planner].
  void SetPlanner();
  // Starts to accept fsctl's connections that bring a new fleet.
  void OpenDoor();
  void Settle();
  void SettleGroups();
  void ReadConfigAgain();
  absl::Status TakeConfig(config::Config config);
  void Resize(uint64_t pool_bytes);
  // Lets the pool's size follow what engines need, or fixes it.
  void SetSizing();
  void LetKvHaveRoom();
  void LetOneComeAhead();
  // AdmissionService::Drops'.
  overload::Why WouldGrow(uint64_t short_bytes) const;

  config::Config config_;
  const Reload reload_;
  Endpoint endpoint_;
  driver::Descriptor gpu_claim_;  // released after the pool
  backing::MeasuredBacking backing_;
  backing::DeviceThread device_thread_;
  std::unique_ptr<slab::TableWriter> table_;
  PoolService pool_;
  EventLoop loop_;
  // Settle runs after each round of the loop, so it is enough to wake the loop
  // up.
  std::unique_ptr<EventSource> device_done_;
  driver::Descriptor keeper_;  // pidfd; not valid without one
  std::unique_ptr<EventSource> keeper_ended_;
  SocketServer sockets_;
  std::unique_ptr<store::StoreThread> store_;
  std::unique_ptr<EventSource> store_done_;
  GpuOfDaemon gpu_;
  std::string size_choice_;  // StartPlan::choice
  std::unique_ptr<ReplicaLook> replicas_;
  std::unique_ptr<EventSource> replicas_seen_;
  std::unique_ptr<AdmissionServer> admission_;  // null without a fleet
  std::unique_ptr<LeaderServer> leader_;        // null without a [planner]
  const slab::TableIdentity pool_identity_;
  const std::shared_ptr<const metrics::Identity> identity_;
  std::unique_ptr<MetricsServer> metrics_;  // null unless wanted
  std::unique_ptr<DaemonFleet> fleet_;
  std::unique_ptr<PoolSizing> sizing_;  // null if the pool's size is fixed
  std::unique_ptr<EventAlarm> sizing_alarm_;
  uint64_t kv_asks_next_ns_ =
      0;  // when an idle engine may next be asked to leave for KV
  uint64_t ahead_next_ns_ = 0;         // when one may come back unasked
  std::unique_ptr<apply::Door> door_;  // null if it cannot be opened
  std::unique_ptr<EventSource> door_knocks_;
  // Set while something is under way that makes no descriptor readable.
  std::unique_ptr<EventAlarm> poll_alarm_;
  std::unique_ptr<EventAlarm> group_alarm_;
  absl::Status device_;
};

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(
    const StartPlan& plan, config::Config config, Reload reload,
    absl::optional<KeptPool> kept) {
  absl::StatusOr<Endpoint> endpoint =
      Endpoint::Claim(config.runtime_dir, plan.device.uuid);
  if (!endpoint.ok()) return endpoint.status();
  // If this daemon cannot take over, peers wait in the kept socket for the next
  // daemon.
  if (kept) endpoint->Keep(true);
  absl::StatusOr<driver::Descriptor> claim = ClaimGpu(plan.device);
  if (!claim.ok()) return claim.status();
  const bool is_new = !kept || kept->is_lost;
  const slab::TableIdentity identity =
      is_new ? NewIdentity(plan) : IdentityOf(kept->state);
  driver::Descriptor listener;
  if (kept) listener = std::move(kept->listener);
  absl::StatusOr<Pool> pool = is_new ? MakePool(plan, config, identity)
                                     : TakeOver(plan, config, *std::move(kept));
  if (!pool.ok()) return pool.status();
  std::unique_ptr<Daemon> daemon(
      new Daemon(std::move(config), std::move(reload), *std::move(endpoint),
                 *std::move(pool), identity));
  daemon->gpu_claim_ = *std::move(claim);
  daemon->OpenStore(plan);
  absl::Status s = daemon->Listen(std::move(listener));
  if (s.ok() && is_new) s = daemon->StoreTable();
  if (!s.ok()) return s;
  char gpu[41];
  abi::FormatGpuUuid(plan.device.uuid, gpu);
  daemon->gpu_ = {gpu, plan.device.total_bytes};
  daemon->size_choice_ = plan.choice;
  daemon->LookForReplicas(plan);
  const absl::Status fleet_set = daemon->SetFleet();
  if (!fleet_set.ok()) return fleet_set;
  s = daemon->SetMetrics();
  if (!s.ok() && is_new) return s;
  if (!s.ok()) log::Error("{}", std::string(s.message()));
  // A kept pool begins with its old size.
  if (!is_new && !daemon->config_.pool.is_auto)
    daemon->Resize(daemon->config_.pool.bytes);
  daemon->SetSizing();
  daemon->OpenDoor();
  daemon->WatchKeeper();
  return daemon;
}

Daemon::Daemon(config::Config config, Reload reload, Endpoint endpoint,
               Pool pool, const slab::TableIdentity& identity)
    : config_(std::move(config)),
      reload_(std::move(reload)),
      endpoint_(std::move(endpoint)),
      backing_(std::move(pool.backing)),
      device_thread_(&backing_),
      table_(std::move(pool.table)),
      pool_(&device_thread_, std::move(pool.state), table_.get(), &kClock,
            std::move(pool.scoreboards)),
      device_done_(loop_.OnReadable(device_thread_.descriptor(), [] {})),
      sockets_(&loop_, &pool_, table_.get(), identity, &kClock,
               [this](const std::string& engine_name) {
                 config::EngineRule rule = config::RuleOf(config_, engine_name);
                 return SocketServer::KvRules{
                     std::move(rule.kv_sizes),
                     config::RulesFor(config_, engine_name),
                     {rule.floor_bytes, rule.cap_bytes}};
               }),
      pool_identity_(identity),
      identity_(IdentityForMetrics(identity)),
      sizing_alarm_(loop_.OnAlarm([] {})),
      poll_alarm_(loop_.OnAlarm([] {})),
      group_alarm_(loop_.OnAlarm([] {})) {}

void Daemon::OpenStore(const StartPlan& plan) {
  store_ =
      std::make_unique<store::StoreThread>(plan.driver, plan.device.ordinal);
  store_->SetLimit(config_.store.bytes);
  store_->SetOthers(
      [socket = endpoint_.socket_path()] { return AskOtherDaemons(socket); });
  store_done_ = loop_.OnReadable(store_->descriptor(),
                                 [this] { sockets_.AnswerCopied(); });
  sockets_.SetStore(store_.get());
}

void Daemon::LookForReplicas(const StartPlan& plan) {
  replicas_ = std::make_unique<ReplicaLook>(
      [driver = plan.driver, device = plan.device.ordinal, own = gpu_.uuid,
       folder = endpoint_.folder()] {
        constexpr absl::Duration kPatience = absl::Milliseconds(500);
        ReplicaLook::Sights seen;
        for (finding::EngineSight& engine :
             finding::SeeEngines(folder, kPatience)) {
          const bool in_reach = engine.gpu == own ||
                                backing::ReadsPeer(driver, device, engine.gpu);
          seen.push_back({std::move(engine), in_reach});
        }
        return seen;
      },
      &kClock);
  // Settle runs after each round of the loop.
  replicas_seen_ = loop_.OnReadable(replicas_->descriptor(), [] {});
}

absl::Status Daemon::Listen(driver::Descriptor kept_listener) {
  using holder::DescriptorStore;
  if (DescriptorStore::Exists()) endpoint_.Keep(true);
  const int kept = kept_listener.get();
  absl::StatusOr<driver::Descriptor> listener =
      endpoint_.Listen(std::move(kept_listener));
  if (!listener.ok()) return listener.status();
  if (listener->get() != kept) {
    DescriptorStore::Remove(kListenerName);
    absl::Status s = DescriptorStore::Store(kListenerName, listener->get());
    if (!s.ok()) return s;
  }
  sockets_.WatchMembers();
  sockets_.Listen(*std::move(listener));
  return absl::OkStatus();
}

// Stores the table last: if it is present, the whole pool can be taken over.
absl::Status Daemon::StoreTable() {
  using holder::DescriptorStore;
  absl::Status s = DescriptorStore::Flush();
  if (!s.ok()) return s;
  return DescriptorStore::Store(kTableName, table_->kept_descriptor());
}

void Daemon::WatchKeeper() {
  if (!holder::DescriptorStore::Exists()) return;
  const pid_t keeper = getppid();
  keeper_ = abi::OpenPidfd(keeper, abi::ProcessStart(keeper));
  if (!keeper_.valid()) return;
  keeper_ended_ = loop_.OnReadable(keeper_.get(), [this] {
    keeper_ended_.reset();
    table_->LoseKeeper();
    log::Warning(
        "the parent that kept this pool for the next daemon has ended: the "
        "pool ends with this daemon and the engines that map it");
  });
}

absl::Status Daemon::Serve() {
  const auto stop = [this] { loop_.Stop(); };
  const auto on_term = loop_.OnSignal(SIGTERM, stop);
  // SIGINT from the parent means that no other daemon follows.
  const auto on_int = loop_.OnSignal(SIGINT, [this] {
    endpoint_.Keep(false);
    loop_.Stop();
  });
  const auto on_hup = loop_.OnSignal(SIGHUP, [this] { ReadConfigAgain(); });
  const auto after_each = loop_.AfterEach([this] { Settle(); });
  Settle();
  log::Info("serving {} on {}{}",
            slab::Describe(backing_.geometry(), pool_.state().present_slabs()),
            endpoint_.socket_path(),
            size_choice_.empty() ? "" : " (" + size_choice_ + ")");
  sd_notify(0, "READY=1");
  loop_.Run();
  sd_notify(0, "STOPPING=1");
  log::Info("stopping; slabs still leased: {}",
            pool_.state().DescribeHolders());
  return device_;
}

absl::Status Daemon::SetFleet() {
  if (!config_.fleet) {
    leader_.reset();
    admission_.reset();
    return absl::OkStatus();
  }
  if (admission_ == nullptr) {
    absl::StatusOr<std::unique_ptr<AdmissionServer>> admission =
        AdmissionServer::Create(
            *config_.fleet, gpu_,
            finding::AdmissionPath(endpoint_.socket_path()), &pool_,
            {[this](slab::EngineId e) { sockets_.Need(e); },
             [this](slab::EngineId e) { return sockets_.moves().BackIn(e); },
             [this](slab::EngineId e) {
               auto residence = sockets_.moves().ResidenceOf(e);
               if (residence) {
                 residence->floor_slabs = pool_.state().Record(e).view.floor;
               }
               return residence;
             },
             [this](slab::EngineId e) { return sockets_.Evict(e); },
             [this](slab::EngineId e) {
               return sockets_.moves().HasDeclined(e);
             },
             [this](slab::EngineId e) { return sockets_.moves().DroppedOf(e); },
             [this](slab::EngineId e, const abi::ShareAddress& lender,
                    uint64_t bytes) {
               return sockets_.Drop(e, {lender, bytes});
             },
             [this](slab::EngineId e) { return sockets_.Restore(e); },
             [this](uint64_t short_bytes) { return WouldGrow(short_bytes); },
             [this] {
               if (sizing_ != nullptr) sizing_->Grow();
             },
             [this] { return replicas_->Recent(); }},
            &kClock, &loop_);
    if (!admission.ok()) return admission.status();
    admission_ = *std::move(admission);
    sockets_.SetMakeRoom(
        [this](slab::EngineId asker, evict::Lack lack, bool may_rest) {
          return admission_ == nullptr
                     ? evict::Room::kNone
                     : admission_->MakeRoom(pool_.state().NameOf(asker), lack,
                                            may_rest);
        });
    sockets_.SetLetGo([this](slab::EngineId engine) {
      return admission_ == nullptr
                 ? sockets_.Evict(engine)
                 : admission_->LetGo(pool_.state().NameOf(engine));
    });
  } else {
    const absl::Status s = admission_->SetFleet(*config_.fleet);
    if (!s.ok()) return s;
  }
  SetPlanner();
  return absl::OkStatus();
}

absl::Status Daemon::SetMetrics() {
  if (!config_.metrics.on) {
    metrics_.reset();
    return absl::OkStatus();
  }
  if (metrics_ != nullptr && metrics_->asked() == config_.metrics) {
    return absl::OkStatus();
  }
  auto metrics = MetricsServer::Create(
      config_.metrics, [this] { return Measure(); },
      [pool = pool_identity_] {
        return abi::CountOldPoolHolders(pool.gpu_uuid, pool.epoch);
      },
      &kClock, &loop_);
  if (!metrics.ok()) return metrics.status();
  metrics_ = *std::move(metrics);
  return absl::OkStatus();
}

metrics::Snapshot Daemon::Measure() const {
  metrics::Snapshot snapshot;
  snapshot.identity = identity_;
  snapshot.pool = MeasurePool(pool_, sockets_.moves(), kClock.NowNs());
  snapshot.pool.store = store_->figures();
  snapshot.table = MeasureTable(*table_);
  snapshot.driver = backing_.Figures();
  if (admission_ != nullptr) snapshot.admission = admission_->Measure();
  if (leader_ != nullptr) snapshot.plan = leader_->Measure();
  return snapshot;
}

void Daemon::SetPlanner() {
  const std::string path = config::FleetPath(config_.fleet_path);
  const bool is_on = config_.fleet->planner.on;
  if (!is_on || (leader_ != nullptr && leader_->fleet_path() != path)) {
    leader_.reset();
  }
  if (!is_on) return;
  if (leader_ != nullptr) return leader_->SetFleet(*config_.fleet);
  leader_ = std::make_unique<LeaderServer>(
      *config_.fleet, lead::Contender{getpid(), gpu_.uuid, path},
      endpoint_.folder(), admission_->plans(), &kClock, &loop_);
}

void Daemon::OpenDoor() {
  fleet_ = std::make_unique<DaemonFleet>(
      gpu_.uuid, &config_, reload_,
      [this](config::Config config) { return TakeConfig(std::move(config)); });
  auto door = apply::Door::Open(
      endpoint_.folder(), gpu_.uuid,
      [this](const apply::Question& q) { return fleet_->Reply(q); });
  if (!door.ok()) {
    log::Warning("fsctl apply cannot reach this daemon: {}",
                 std::string(door.status().message()));
    return;
  }
  door_ = *std::move(door);
  door_knocks_ =
      loop_.OnReadable(door_->descriptor(), [this] { door_->Turn(); });
}

// Has an idle engine leave if KV is short. Only a pool that can grow gets the
// engine's memory.
void Daemon::LetKvHaveRoom() {
  const uint64_t now_ns = kClock.NowNs();
  const bool lacks_kv = pool_.state().IsExhausted() && sizing_->IsAtLimit();
  if (!lacks_kv || now_ns < kv_asks_next_ns_) return;
  if (sockets_.moves().AnyLeaves()) return;
  kv_asks_next_ns_ = now_ns + kKvPauseNs;
  admission_->MakeKvRoom();
}

// Brings back an engine ahead of its next request, at most once a second, if
// the pool can grow.
void Daemon::LetOneComeAhead() {
  const uint64_t now_ns = kClock.NowNs();
  if (now_ns < ahead_next_ns_ || !admission_->AnyIsOut()) return;
  if (pool_.state().tight() || sockets_.moves().AnyMoves()) return;
  const absl::optional<uint64_t> idle = sizing_->IdleBytes();
  if (!idle) return;  // the memory is measured first
  ahead_next_ns_ = now_ns + kAheadPauseNs;
  admission_->BringAhead(*idle);
}

// Replicas drop nothing while the pool can get memory without slowing down any
// step.
overload::Why Daemon::WouldGrow(uint64_t short_bytes) const {
  if (sizing_ == nullptr) return overload::Why::kFixedPool;
  return sizing_->IsAtLimit(short_bytes) && !sockets_.moves().AnyLeaves()
             ? overload::Why::kDrops
             : overload::Why::kNotShort;
}

// Shows engines that span GPUs what they could have here.
void Daemon::SettleGroups() {
  const auto groups = SureOfGroups(
      pool_, admission_ == nullptr ? std::vector<admission::EngineNeed>()
                                   : admission_->needs());
  pool_.ShowSure(groups);
  SetInterval(groups.empty() ? 0 : kGroupPollUs, group_alarm_.get());
}

void Daemon::Settle() {
  device_ = pool_.Poll();
  if (!device_.ok()) return loop_.Stop();
  sockets_.Settle();
  if (sizing_ != nullptr) {
    sizing_->Settle();
    const uint64_t next_ns = sizing_->next_ns();
    sizing_alarm_->Set(next_ns == UINT64_MAX ? next_ns : next_ns / 1000 + 1);
  }
  if (admission_ != nullptr) {
    admission_->Settle();
    if (sizing_ != nullptr) {
      LetKvHaveRoom();
      LetOneComeAhead();
    }
  }
  SettleGroups();
  // Relaxed: a statistic, which publishes no other data.
  table_->counters().loop_longest_turn_us.store(loop_.longest_turn_us(),
                                                std::memory_order_relaxed);
  const bool restless = pool_.state().restless();
  SetInterval(restless ? kRestlessPollUs : 0, poll_alarm_.get());
}

void Daemon::SetSizing() {
  sizing_.reset();
  if (config_.pool.is_auto) {
    sizing_ = std::make_unique<PoolSizing>(
        config::HeadroomBytes(config_.headroom, gpu_.memory_bytes), &pool_,
        &kClock);
  }
  sockets_.SetSizing(sizing_.get());
  table_->SetGivesRoom(sizing_ != nullptr || AnyMayLeave(config_));
  sizing_alarm_->Set(UINT64_MAX);
}

void Daemon::Resize(uint64_t pool_bytes) {
  const auto slabs = static_cast<uint32_t>(std::min<uint64_t>(
      pool_bytes / backing_.geometry().slab_bytes(), UINT32_MAX));
  const slab::PoolState& pool = pool_.state();
  if (slabs == pool.wanted_slabs()) return;
  const absl::Status s = pool_.machine()->Resize(slabs);
  if (s.ok()) {
    log::Info("resizing the pool from {} to {} slabs", pool.present_slabs(),
              slabs);
  } else {
    log::Error("cannot resize the pool: {}", std::string(s.message()));
  }
}

void Daemon::ReadConfigAgain() {
  const absl::Status taken = fleet_->TakeAgain();
  if (taken.ok()) return;
  log::Error("keeping the old configuration: {}", std::string(taken.message()));
}

absl::Status Daemon::TakeConfig(config::Config config) {
  sd_notify(0, "RELOADING=1");
  for (const std::string& note : NotTaken(config_, config)) {
    log::Warning("{}", note);
  }
  // Resizes even if the size is the same, since an earlier attempt may have
  // failed.
  if (!config.pool.is_auto) Resize(config.pool.bytes);
  config_ = std::move(config);
  store_->SetLimit(config_.store.bytes);
  SetSizing();
  const absl::Status fleet_set = SetFleet();
  if (!fleet_set.ok()) {
    log::Error("keeping the old fleet: {}", std::string(fleet_set.message()));
  }
  const absl::Status metrics_set = SetMetrics();
  if (!metrics_set.ok()) {
    log::Error("metrics stay as they were: {}",
               std::string(metrics_set.message()));
  }
  log::SetLevel(config_.log_level);
  log::Info("configuration read again: {} engine rules, {} frame rules",
            config_.engines.size(),
            config_.rules.size() + config_.shipped_rules.size());
  sd_notify(0, "READY=1");
  return fleet_set;
}

}  // namespace

absl::Status RunDaemon(const StartPlan& plan, config::Config config,
                       Reload reload, absl::optional<KeptPool> kept,
                       bool* began) {
  if (plan.nvml.ok() && plan.nvml->confidential()) {
    log::Warning(
        "confidential computing is on: the GPU takes few processes (18 at "
        "most), and may refuse to share memory between them");
  }
  const absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(
      plan, std::move(config), std::move(reload), std::move(kept));
  if (!daemon.ok()) return daemon.status();
  *began = true;
  return (*daemon)->Serve();
}

}  // namespace fineserve::server

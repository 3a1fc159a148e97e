#include "daemon/server/pool_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/abi/transport.h"
#include "daemon/log/log.h"

namespace fineserve::server {
namespace {

// Slabs made or withdrawn in one Poll. Heuristic: a granule takes 193 µs on an
// A100, and members wait meanwhile.
constexpr uint32_t kResizeStep = 8;

}  // namespace

using slab::EngineId;
using slab::LeaseId;
using slab::Number;
using slab::SlabId;
using slab::SlabManager;

PoolService::PoolService(backing::Backing* backing, uint32_t present,
                         slab::TableWriter* table, const Clock* clock)
    : backing_(backing),
      table_(table),
      clock_(clock),
      slabs_(backing->geometry().slab_count, present, table),
      views_(&slabs_, table, clock, backing->geometry(), table->epoch()),
      wanted_slabs_(present) {
  for (uint32_t slot = 0; slot < abi::kEngineCapacity; ++slot) {
    free_slots_.insert(slot);
  }
}

void PoolService::Start() {
  std::vector<SlabId> all;
  for (uint32_t i = 0; i < present_slabs(); ++i) all.push_back(SlabId{i});
  Fill(all);
}

absl::optional<EngineId> PoolService::Find(const std::string& name,
                                           uid_t uid) const {
  for (const auto& [id, engine] : engines_) {
    if (engine.state == abi::EngineState::kAlive && engine.name == name &&
        engine.uid == uid) {
      return id;
    }
  }
  return absl::nullopt;
}

absl::StatusOr<EngineId> PoolService::FindOrMake(const std::string& name,
                                                 uid_t uid) {
  if (const auto found = Find(name, uid)) return *found;
  if (free_slots_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this daemon already serves ", abi::kEngineCapacity,
                     " engines, its maximum"));
  }
  const uint32_t slot = *free_slots_.begin();
  free_slots_.erase(free_slots_.begin());
  const EngineId id{++last_engine_};
  engines_[id] = {slot,           name, uid, {}, {}, abi::EngineState::kAlive,
                  clock_->NowNs()};
  return id;
}

absl::StatusOr<EngineId> PoolService::Join(const std::string& name, uid_t uid,
                                           pid_t pid) {
  absl::StatusOr<EngineId> id = FindOrMake(name, uid);
  if (!id.ok()) return id;
  Engine& engine = engines_[*id];
  if (engine.members.size() >= abi::kMemberCapacity &&
      engine.members.count(pid) == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("engine ", Number(*id), " (", name, ") already has ",
                     abi::kMemberCapacity, " members, the maximum"));
  }
  engine.members.insert(pid);
  log::Info("engine {} ({}): pid {} joined", Number(*id), name, pid);
  Publish(*id);
  return id;
}

void PoolService::Exited(pid_t pid) {
  for (auto it = engines_.begin(); it != engines_.end();) {
    const EngineId id = it->first;
    Engine& engine = it->second;
    ++it;  // Bury may erase it
    if (engine.members.erase(pid) == 0) continue;
    engine.exited.insert(pid);
    // No process can return the view's slabs any more. They stay the engine's,
    // whose other members may map them, until its last member has exited.
    if (views_.Has(id, pid)) views_.Forget(id);
    log::Info("engine {} ({}): pid {} exited", Number(id), engine.name, pid);
    if (engine.members.empty()) {
      Bury(id, &engine);
    } else {
      Publish(id);
    }
  }
}

void PoolService::Bury(EngineId id, Engine* engine) {
  const uint32_t held = slabs_.Quarantine(id);
  if (held == 0) {
    Remove(id);
    return;
  }
  engine->state = abi::EngineState::kQuarantined;
  engine->since_ns = clock_->NowNs();
  slab::Count(table_->counters().engines_died);
  slab::Count(table_->counters().slabs_quarantined, held);
  log::Warning("engine {} ({}) died holding {} slabs: quarantined", Number(id),
               engine->name, held);
  Publish(id);
}

void PoolService::Remove(EngineId id) {
  const uint32_t slot = engines_[id].slot;
  table_->ClearEngine(slot);
  free_slots_.insert(slot);
  engines_.erase(id);
}

SlabManager::Outcome PoolService::Lease(EngineId engine, uint32_t slab_count,
                                        uint64_t ticket) {
  SlabManager::Outcome outcome =
      slabs_.Lease(engine, slab_count, ticket, views_.Reclaimable());
  if (const auto* none = absl::get_if<SlabManager::Exhausted>(&outcome)) {
    slab::Count(table_->counters().leases_denied);
    log::Warning(
        "pool exhausted: engine {} ({}) asked for {} slabs, {} are free; "
        "held by: {}",
        Number(engine), engines_[engine].name, slab_count, none->available,
        DescribeHolders());
  } else if (absl::holds_alternative<SlabManager::Grant>(outcome)) {
    slab::Count(table_->counters().leases_granted);
    Publish(engine);
  }
  return outcome;
}

absl::Status PoolService::Return(EngineId engine, LeaseId lease) {
  absl::StatusOr<std::vector<SlabId>> slabs = slabs_.Return(engine, lease);
  if (!slabs.ok()) return slabs.status();
  Fill(*slabs);
  Publish(engine);
  return absl::OkStatus();
}

absl::StatusOr<driver::Descriptor> PoolService::ExportGranule(EngineId engine,
                                                              LeaseId lease,
                                                              uint32_t index) {
  const std::vector<SlabId>* held = slabs_.Find(engine, lease);
  const uint32_t per_slab = backing_->geometry().granules_per_slab;
  if (held == nullptr || index / per_slab >= held->size()) {
    return absl::NotFoundError(absl::StrCat("engine ", Number(engine),
                                            " has no granule ", index,
                                            " in lease ", Number(lease)));
  }
  return backing_->Export(Number((*held)[index / per_slab]) * per_slab +
                          index % per_slab);
}

void PoolService::Fill(const std::vector<SlabId>& slabs) {
  for (SlabId slab : slabs) {
    const absl::Status s = backing_->StartZero(slab);
    if (s.ok()) continue;
    ++failed_fills_;
    log::Error("cannot zero slab {}, which is lost to the pool: {}",
               Number(slab), std::string(s.message()));
  }
}

std::vector<PoolService::Grant> PoolService::Poll() {
  EndQuarantines();
  std::vector<Grant> grants = slabs_.TakeGrants();
  absl::StatusOr<std::vector<SlabId>> zeroed = backing_->TakeZeroed();
  if (!zeroed.ok()) {
    // The device is gone: no slab that was being filled will become FREE.
    log::Error("the device fails to zero slabs, so none become free: {}",
               std::string(zeroed.status().message()));
    failed_fills_ = slabs_.zeroing_count();
    return grants;
  }
  for (SlabId slab : *zeroed) {
    slab::Count(table_->counters().slabs_zeroed);
    slab::Count(table_->counters().bytes_zeroed,
                backing_->geometry().slab_bytes());
    for (Grant& grant : slabs_.Zeroed(slab)) grants.push_back(std::move(grant));
  }
  for (const Grant& grant : grants) {
    slab::Count(table_->counters().leases_granted);
    Publish(grant.engine);
  }
  if (present_slabs() < wanted_slabs_) Grow();
  if (present_slabs() > wanted_slabs_) Shrink();
  Share();
  return grants;
}

absl::Status PoolService::Resize(uint32_t slabs) {
  if (slabs == 0 || slabs > slabs_.slab_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the pool can have 1 to ", slabs_.slab_count(), " slabs, not ", slabs));
  }
  if (slabs < views_.Floors()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the pool cannot shrink to ", slabs,
        " slabs: the floors of its engines need ", views_.Floors()));
  }
  wanted_slabs_ = slabs;
  return absl::OkStatus();
}

void PoolService::Grow() {
  for (uint32_t i = 0, made = 0;
       i < slabs_.slab_count() && present_slabs() < wanted_slabs_; ++i) {
    if (slabs_.word(SlabId{i}).state != abi::SlabState::kAbsent) continue;
    if (made++ == kResizeStep) return;
    const absl::Status s = backing_->CreateSlab(SlabId{i});
    if (!s.ok()) {
      wanted_slabs_ = present_slabs();
      log::Error("cannot enlarge the pool, which stays at {} slabs: {}",
                 wanted_slabs_, std::string(s.message()));
      return;
    }
    slabs_.Add(SlabId{i});
    slab::Count(table_->counters().slabs_added);
    Fill({SlabId{i}});
  }
}

// Highest first, because every view can map the lowest slabs.
void PoolService::Shrink() {
  for (uint32_t i = slabs_.slab_count(), gone = 0;
       i-- > 0 && present_slabs() > wanted_slabs_ && gone < kResizeStep;) {
    if (!slabs_.Withdraw(SlabId{i})) continue;
    ++gone;
    backing_->DestroySlab(SlabId{i});
    slab::Count(table_->counters().slabs_withdrawn);
    // Every process that maps it must unmap it, or the GPU never gets it back.
    views_.TellAll();
  }
}

void PoolService::Share() {
  const uint32_t present = present_slabs();
  const uint32_t surplus =
      present > wanted_slabs_ ? present - wanted_slabs_ : 0;
  for (EngineId id : views_.Balance(slabs_.promised_count() + surplus)) {
    Publish(id);
    table_->Announce(engines_[id].slot);
  }
}

absl::Status PoolService::RegisterView(EngineId engine, pid_t pid,
                                       const ViewSpec& spec,
                                       const ShareLimits& limits) {
  absl::Status s =
      views_.Register(engine, pid, engines_[engine].slot, spec, limits);
  if (s.ok()) Publish(engine);
  return s;
}

absl::Status PoolService::ActivateView(EngineId engine, pid_t pid,
                                       uint32_t slabs, uint32_t wanted) {
  absl::Status s = views_.Activate(engine, pid, slabs, wanted);
  if (!s.ok()) return s;
  const abi::ViewRecord view = views_.Record(engine);
  log::Info(
      "engine {} ({}): view active, {} planes × {} bytes, floor {}, cap {} "
      "slabs",
      Number(engine), engines_[engine].name, view.planes, view.page_bytes,
      view.floor, view.cap);
  Publish(engine);
  return s;
}

bool PoolService::Want(EngineId engine, pid_t pid, uint32_t wanted) {
  if (!views_.Want(engine, pid, wanted)) return false;
  Publish(engine);
  return true;
}

absl::Status PoolService::ReturnSlab(EngineId engine, pid_t pid, SlabId slab,
                                     LeaseId lease) {
  if (!views_.IsActive(engine, pid)) {
    return absl::NotFoundError("this process has no active view");
  }
  absl::Status s = slabs_.ReturnSlab(engine, slab, lease);
  if (!s.ok()) return s;
  slab::Count(table_->counters().slabs_returned);
  Fill({slab});
  Publish(engine);
  return s;
}

absl::Status PoolService::CloseView(EngineId engine, pid_t pid) {
  if (!views_.Has(engine, pid)) {
    return absl::NotFoundError("this process has no view");
  }
  std::vector<SlabId> freed;
  for (const auto& [slab, lease] : slabs_.InView(engine)) {
    if (slabs_.ReturnSlab(engine, slab, lease).ok()) freed.push_back(slab);
  }
  views_.Forget(engine);
  Fill(freed);
  Publish(engine);
  return absl::OkStatus();
}

absl::StatusOr<driver::Descriptor> PoolService::ExportPoolGranule(
    EngineId engine, pid_t pid, uint32_t index) {
  const SlabId slab{index / backing_->geometry().granules_per_slab};
  if (!views_.MayMap(engine, pid, slab)) {
    return absl::NotFoundError(absl::StrCat(
        "engine ", Number(engine), " may not map slab ", Number(slab)));
  }
  return backing_->Export(index);
}

bool PoolService::quarantining() const {
  return std::any_of(engines_.begin(), engines_.end(), [](const auto& entry) {
    return entry.second.state == abi::EngineState::kQuarantined;
  });
}

void PoolService::EndQuarantines() {
  const uint64_t now = clock_->NowNs();
  if (!quarantining() || now < next_pid_check_ns_) return;
  next_pid_check_ns_ = now + kPidCheckNs;
  const absl::StatusOr<std::vector<pid_t>> listed = backing_->DevicePids();
  if (!listed.ok()) {
    if (!std::exchange(cannot_list_logged_, true)) {
      log::Warning(
          "keeping slabs quarantined: the driver cannot list GPU processes: {}",
          std::string(listed.status().message()));
    }
    return;
  }
  for (auto it = engines_.begin(); it != engines_.end();) {
    const EngineId id = it->first;
    const Engine& engine = it->second;
    ++it;
    if (engine.state != abi::EngineState::kQuarantined) continue;
    const bool lingers =
        std::any_of(listed->begin(), listed->end(),
                    [&](pid_t pid) { return engine.exited.count(pid) != 0; });
    if (lingers) continue;
    const std::vector<SlabId> released = slabs_.Release(id);
    log::Info("engine {} ({}): {} slabs leave quarantine", Number(id),
              engine.name, released.size());
    Remove(id);
    Fill(released);
  }
}

std::string PoolService::DescribeHolders() const {
  std::vector<std::string> holders;
  for (const auto& [id, holding] : slabs_.Holdings()) {
    const Engine& engine = engines_.at(id);
    const bool dead = engine.state == abi::EngineState::kQuarantined;
    holders.push_back(absl::StrCat("engine ", Number(id), " (", engine.name,
                                   dead ? ", dead" : "", ") ", holding.slabs,
                                   " slabs"));
  }
  return holders.empty() ? "none" : absl::StrJoin(holders, ", ");
}

void PoolService::Publish(EngineId id) {
  const Engine& engine = engines_[id];
  abi::EngineRecord record = {};
  record.id = Number(id);
  record.state = engine.state;
  record.uid = engine.uid;
  record.slabs_held = slabs_.HeldBy(id).slabs;
  record.since_ns = engine.since_ns;
  // Of a quarantined engine, the pids that its quarantine waits for.
  const std::set<pid_t>& pids = engine.state == abi::EngineState::kQuarantined
                                    ? engine.exited
                                    : engine.members;
  for (pid_t pid : pids) {
    if (record.member_count == abi::kMemberCapacity) break;
    record.member_pids[record.member_count++] = static_cast<uint32_t>(pid);
  }
  abi::CopyText(record.name, engine.name.c_str());
  record.view = views_.Record(id);
  table_->SetEngine(engine.slot, record);
}

}  // namespace fineserve::server

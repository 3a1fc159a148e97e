#include "daemon/server/pool_service.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/log/log.h"

namespace fineserve::server {

using slab::EngineId;
using slab::LeaseId;
using slab::Number;
using slab::SlabId;

PoolService::PoolService(backing::Backing* backing, uint32_t present,
                         slab::TableWriter* table, const Clock* clock)
    : backing_(backing),
      table_(table),
      clock_(clock),
      state_(backing->geometry(), present) {
  Execute();
}

absl::StatusOr<EngineId> PoolService::Join(const std::string& name, uid_t uid,
                                           pid_t pid) {
  absl::StatusOr<EngineId> engine =
      state_.Join(name, uid, pid, clock_->NowNs());
  Execute();
  return engine;
}

void PoolService::Exited(pid_t pid) {
  state_.Exited(pid, clock_->NowNs());
  Execute();
}

void PoolService::Lease(EngineId engine, uint32_t slab_count, uint64_t ticket) {
  state_.Lease(engine, slab_count, ticket, clock_->NowNs());
  Execute();
}

absl::Status PoolService::Return(EngineId engine, LeaseId lease) {
  absl::Status s = state_.Return(engine, lease);
  Execute();
  return s;
}

absl::Status PoolService::RegisterView(EngineId engine, pid_t pid,
                                       const slab::ViewSpec& spec,
                                       const slab::ShareLimits& limits) {
  absl::Status s = state_.RegisterView(engine, pid, spec, limits);
  if (!s.ok()) return s;
  absl::StatusOr<ViewScoreboardMemfd> scoreboard = ViewScoreboardMemfd::Create(
      table_->epoch(), engine, pid, state_.slabs().slab_count());
  if (scoreboard.ok()) {
    scoreboards_.insert_or_assign(engine, *std::move(scoreboard));
  } else {
    state_.CloseView(engine, pid).IgnoreError();
  }
  Execute();
  return scoreboard.status();
}

absl::Status PoolService::ActivateView(EngineId engine, pid_t pid,
                                       uint32_t slabs, uint32_t wanted) {
  absl::Status s = state_.ActivateView(engine, pid, slabs, wanted);
  Execute();
  return s;
}

bool PoolService::Want(EngineId engine, pid_t pid, uint32_t wanted) {
  const bool taken = state_.Want(engine, pid, wanted);
  Execute();
  return taken;
}

absl::Status PoolService::ReturnSlab(EngineId engine, pid_t pid, SlabId slab,
                                     LeaseId lease) {
  absl::Status s = state_.ReturnSlab(engine, pid, slab, lease);
  Execute();
  return s;
}

absl::Status PoolService::CloseView(EngineId engine, pid_t pid) {
  absl::Status s = state_.CloseView(engine, pid);
  Execute();
  return s;
}

absl::StatusOr<driver::Descriptor> PoolService::ExportGranule(EngineId engine,
                                                              LeaseId lease,
                                                              uint32_t index) {
  const std::vector<SlabId>* held = slabs().Find(engine, lease);
  const uint32_t per_slab = backing_->geometry().granules_per_slab;
  if (held == nullptr || index / per_slab >= held->size()) {
    return absl::NotFoundError(absl::StrCat("engine ", Number(engine),
                                            " has no granule ", index,
                                            " in lease ", Number(lease)));
  }
  return backing_->Export(Number((*held)[index / per_slab]) * per_slab +
                          index % per_slab);
}

absl::StatusOr<driver::Descriptor> PoolService::ExportPoolGranule(
    EngineId engine, pid_t pid, uint32_t index) {
  const SlabId slab{index / backing_->geometry().granules_per_slab};
  if (!state_.MayMap(engine, pid, slab)) {
    return absl::NotFoundError(absl::StrCat(
        "engine ", Number(engine), " may not map slab ", Number(slab)));
  }
  return backing_->Export(index);
}

uint64_t PoolService::UsedTokens(EngineId engine, uint32_t most_slabs) const {
  const slab::SlabLayout& layout = state_.Layout(engine);
  return scoreboards_.at(engine).UsedBlocks(most_slabs * layout.LeastBlocks()) *
         layout.format().block_tokens;
}

absl::Status PoolService::Poll() {
  const absl::StatusOr<std::vector<SlabId>> zeroed = backing_->TakeZeroed();
  if (!zeroed.ok()) return zeroed.status();
  for (SlabId slab : *zeroed) state_.Zeroed(slab);
  state_.Settle(clock_->NowNs(), [this](EngineId engine, SlabId slab) {
    return scoreboards_.at(engine).UsedBlocks(slab);
  });
  Execute();
  return absl::OkStatus();
}

void PoolService::Execute() {
  for (slab::Effects effects = state_.TakeEffects(); !effects.empty();
       effects = state_.TakeEffects()) {
    Publish(effects);
    for (const std::string& note : effects.notes) log::Info("{}", note);
    for (SlabId slab : effects.drop) backing_->DestroySlab(slab);
    for (SlabId slab : effects.make) Make(slab);
    for (SlabId slab : effects.fill) Fill(slab);
    if (effects.list_processes) ListProcesses();
    LogRefusals(effects);
    std::move(effects.grants.begin(), effects.grants.end(),
              std::back_inserter(answers_.grants));
    std::move(effects.refusals.begin(), effects.refusals.end(),
              std::back_inserter(answers_.refusals));
  }
}

// Words first: whoever is woken, or reads a record, finds them in place.
void PoolService::Publish(const slab::Effects& effects) {
  for (const slab::SlabChange& change : effects.changes) {
    table_->SetSlab(change.slab, change.word);
  }
  for (uint32_t slot : effects.vacant) table_->ClearEngine(slot);
  for (EngineId engine : effects.records) {
    table_->SetEngine(state_.SlotOf(engine), state_.Record(engine));
  }
  for (EngineId engine : effects.views) {
    table_->Announce(state_.SlotOf(engine));
  }
  for (auto it = scoreboards_.begin(); it != scoreboards_.end();) {
    it = state_.HasView(it->first) ? std::next(it) : scoreboards_.erase(it);
  }
  PublishCounters();
}

void PoolService::PublishCounters() {
  const slab::PoolCounters& now = state_.counters();
  abi::TableCounters& shown = table_->counters();
  // Relaxed: statistics that publish nothing else.
  const auto show = [](std::atomic<uint64_t>* counter, uint64_t value) {
    counter->store(value, std::memory_order_relaxed);
  };
  show(&shown.leases_granted, now.leases_granted);
  show(&shown.leases_denied, now.leases_denied);
  show(&shown.slabs_zeroed, now.slabs_zeroed);
  show(&shown.bytes_zeroed, now.slabs_zeroed * slab_bytes());
  show(&shown.slabs_quarantined, now.slabs_quarantined);
  show(&shown.engines_died, now.engines_died);
  show(&shown.slabs_asked_back, now.slabs_asked_back);
  show(&shown.slabs_returned, now.slabs_returned);
  show(&shown.slabs_added, now.slabs_added);
  show(&shown.slabs_withdrawn, now.slabs_withdrawn);
}

void PoolService::Fill(SlabId slab) {
  const absl::Status s = backing_->StartZero(slab);
  if (s.ok()) return;
  state_.NotZeroed(slab);
  log::Error("cannot zero slab {}, which stays out of use until it can: {}",
             Number(slab), std::string(s.message()));
}

void PoolService::Make(SlabId slab) {
  const absl::Status s = backing_->CreateSlab(slab);
  if (s.ok()) return state_.Made(slab);
  state_.NotMade(slab);
  log::Error("cannot enlarge the pool, which stays at {} slabs: {}",
             state_.present_slabs(), std::string(s.message()));
}

void PoolService::ListProcesses() {
  const absl::StatusOr<std::vector<pid_t>> listed = backing_->DevicePids();
  if (listed.ok() && state_.Listed(*listed, getpid())) return;
  if (std::exchange(cannot_list_logged_, true)) return;
  log::Warning(
      "keeping slabs quarantined: the driver cannot list GPU processes: {}",
      listed.ok() ? "its list lacks this daemon; share the host's pid "
                    "namespace (for a container: --pid=host)"
                  : std::string(listed.status().message()));
}

void PoolService::LogRefusals(const slab::Effects& effects) {
  for (const slab::Refusal& refusal : effects.refusals) {
    log::Warning(
        "pool exhausted: engine {} ({}) asked for {} slabs, {} are free{}; "
        "held by: {}",
        Number(refusal.engine), state_.NameOf(refusal.engine), refusal.count,
        refusal.available, refusal.late ? ", none were returned in time" : "",
        state_.DescribeHolders());
  }
}

}  // namespace fineserve::server

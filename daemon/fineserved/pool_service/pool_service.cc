#include "daemon/fineserved/pool_service/pool_service.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/descriptor_store.h"
#include "daemon/base/log/log.h"
#include "daemon/fineserved/pool_service/kept_pool.h"

namespace fineserve::server {

using slab::EngineId;
using slab::Number;
using slab::SlabId;

PoolService::PoolService(backing::DeviceQueue* device, slab::PoolState state,
                         slab::TableWriter* table, const Clock* clock,
                         Scoreboards scoreboards)
    : device_(device),
      table_(table),
      clock_(clock),
      state_(std::move(state)),
      meter_(state_, clock->NowNs()) {
  TakeScoreboards(std::move(scoreboards));
  Execute();
  table_->Serve();
  state_.HoldBackFills();
  Execute();
  // Asks early, to show whether quarantines can ever end.
  device_->ListProcesses(state_.AwaitedPids());
}

// A view without a scoreboard was never answered, or its figures are lost. The
// figures are hints, so the view's slabs are safe without them.
void PoolService::TakeScoreboards(Scoreboards kept) {
  const uint32_t slabs = state_.slabs().slab_count();
  for (EngineId engine : state_.Views()) {
    absl::StatusOr<ViewScoreboardMemfd> scoreboard =
        ViewScoreboardMemfd::Adopt(std::move(kept[engine]), engine, slabs);
    if (!scoreboard.ok()) {
      log::Warning("engine {}: its view's scoreboard is lost: {}",
                   Number(engine), std::string(scoreboard.status().message()));
      scoreboard = ViewScoreboardMemfd::Create(table_->epoch(), engine,
                                               /*pid=*/0, slabs);
    }
    if (scoreboard.ok()) {
      scoreboards_.insert_or_assign(engine, *std::move(scoreboard));
    }
  }
}

absl::Status PoolService::RegisterView(EngineId engine, pid_t pid,
                                       const slab::ViewSpec& spec,
                                       const slab::ShareLimits& limits) {
  absl::Status s = state_.RegisterView(engine, pid, spec, limits);
  if (!s.ok()) return s;
  absl::StatusOr<ViewScoreboardMemfd> scoreboard = ViewScoreboardMemfd::Create(
      table_->epoch(), engine, pid, state_.slabs().slab_count());
  s = scoreboard.status();
  // Removes the former one before the view is published, since the next daemon
  // looks for it.
  holder::DescriptorStore::Remove(ScoreboardName(engine));
  if (s.ok()) {
    s = holder::DescriptorStore::Store(ScoreboardName(engine),
                                       scoreboard->descriptor());
  }
  if (s.ok()) {
    scoreboards_.insert_or_assign(engine, *std::move(scoreboard));
  } else {
    state_.CloseView(engine, pid).IgnoreError();
  }
  Execute();
  return s;
}

absl::Status PoolService::Poll() {
  std::vector<backing::Completion> done = device_->Take();
  do {
    for (backing::Completion& one : done) {
      absl::Status s = Report(std::move(one));
      if (!s.ok()) return s;
    }
    state_.Settle(
        clock_->NowNs(),
        [this](EngineId engine, SlabId slab) {
          return scoreboards_.at(engine).UsedBlocks(slab);
        },
        [this](EngineId engine, SlabId slab) {
          return scoreboards_.at(engine).Wishes(slab);
        });
    Execute();
    // A device that works synchronously has already done what was just decided.
    done = device_->Take();
  } while (!done.empty());
  return absl::OkStatus();
}

absl::Status PoolService::Report(backing::Completion done) {
  if (const auto* lost = absl::get_if<backing::Lost>(&done)) return lost->why;
  if (const auto* made = absl::get_if<backing::Made>(&done)) {
    ReportMade(*made);
  } else if (const auto* zeroed = absl::get_if<backing::Zeroed>(&done)) {
    ReportZeroed(*zeroed);
  } else if (const auto* listed = absl::get_if<backing::Listed>(&done)) {
    ReportListed(*listed);
  } else if (auto* measured = absl::get_if<backing::Measured>(&done)) {
    free_ = std::move(measured->free_bytes);
  } else {
    answers_.exports.push_back(absl::get<backing::Exported>(std::move(done)));
  }
  return absl::OkStatus();
}

void PoolService::ReportMade(const backing::Made& made) {
  if (made.status.ok()) return state_.Made(made.slab);
  const bool first = state_.resizing();
  state_.NotMade(made.slab);
  if (!first) return;
  log::Error("cannot enlarge the pool, which stays at {} slabs: {}",
             state_.present_slabs(), std::string(made.status.message()));
}

void PoolService::ReportZeroed(const backing::Zeroed& zeroed) {
  if (zeroed.status.ok()) {
    cannot_zero_logged_ = false;
    return state_.Zeroed(zeroed.slab);
  }
  state_.NotZeroed(zeroed.slab);
  if (std::exchange(cannot_zero_logged_, true)) return;
  log::Error("cannot zero slab {}, which is out of use until it can: {}",
             Number(zeroed.slab), std::string(zeroed.status.message()));
}

void PoolService::ReportListed(const backing::Listed& listed) {
  const bool errs = state_.HasErred(listed.memory_errors, clock_->NowNs());
  const bool known = state_.Listed(
      listed.pids.ok() ? *listed.pids : std::vector<pid_t>{}, getpid());
  if (errs) {
    log::Error(
        "the GPU's memory has had an uncorrectable error ({} since the driver "
        "was loaded): what dead engines held gets new memory",
        listed.memory_errors);
  }
  if (known) return;
  slab::Count(table_->counters().process_lists_useless);
  if (std::exchange(cannot_list_logged_, true)) return;
  log::Warning(
      "slabs of dead engines stay quarantined: the driver cannot list GPU "
      "processes: {}",
      listed.pids.ok() ? "its list lacks this daemon; share the host's pid "
                         "namespace (for a container: --pid=host)"
                       : std::string(listed.pids.status().message()));
}

void PoolService::Execute() {
  for (slab::Effects effects = state_.TakeEffects(); !effects.empty();
       effects = state_.TakeEffects()) {
    Publish(effects);
    for (const std::string& note : effects.notes) log::Info("{}", note);
    for (SlabId slab : effects.drop) device_->Drop(slab);
    for (SlabId slab : effects.make) device_->Make(slab);
    for (SlabId slab : effects.fill) device_->Fill(slab);
    if (effects.list_processes) device_->ListProcesses(state_.AwaitedPids());
    LogRefusals(effects);
    std::move(effects.grants.begin(), effects.grants.end(),
              std::back_inserter(answers_.grants));
    std::move(effects.refusals.begin(), effects.refusals.end(),
              std::back_inserter(answers_.refusals));
  }
}

// Publishes the slabs' words first, so that an engine that is woken, or reads a
// record, finds them in place.
void PoolService::Publish(const slab::Effects& effects) {
  table_->SetMarks(state_.last_engine(), slabs().last_lease(),
                   state_.wanted_slabs());
  const uint64_t now_ns = clock_->NowNs();
  for (const slab::SlabChange& change : effects.changes) {
    table_->SetSlab(change.slab, change.word, change.asker);
    meter_.Saw(change, now_ns);
  }
  meter_.SawEngines(effects.records, state_);
  for (uint32_t slot : effects.vacant) table_->ClearEngine(slot);
  for (EngineId engine : effects.records) {
    table_->SetEngine(state_.SlotOf(engine), state_.Record(engine));
  }
  for (EngineId engine : effects.views) {
    table_->Announce(state_.SlotOf(engine));
  }
  for (auto it = scoreboards_.begin(); it != scoreboards_.end();) {
    if (state_.HasView(it->first)) {
      ++it;
      continue;
    }
    holder::DescriptorStore::Remove(ScoreboardName(it->first));
    it = scoreboards_.erase(it);
  }
  table_->SetExhausted(state_.IsExhausted());
  PublishCounters();
}

void PoolService::ShowSure(
    const std::map<EngineId, slab::SureBlocks>& engines) {
  if (!engines.empty()) ShowUse();
  for (const auto& [engine, sure] : engines) {
    const uint32_t slot = state_.SlotOf(engine);
    if (table_->ShowSure(slot, sure)) table_->Announce(slot);
  }
}

void PoolService::ShowUse() {
  for (const auto& [engine, scoreboard] : scoreboards_) {
    for (const SlabId slab : slabs().SlabsHeldBy(engine)) {
      if (!abi::IsInView(slabs().word(slab))) continue;
      table_->ShowUse(slab, scoreboard.UsedBlocks(slab));
    }
  }
}

void PoolService::PublishCounters() {
  const slab::PoolCounters& now = state_.counters();
  abi::TableCounters& shown = table_->counters();
  // Relaxed: statistics, which publish no other data.
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

void PoolService::LogRefusals(const slab::Effects& effects) {
  for (const slab::Refusal& refusal : effects.refusals) {
    if (refusal.limit != 0) {
      log::Warning(
          "engine {} ({}) asked for {} slabs, its limit of {} leaves {}",
          Number(refusal.engine), state_.NameOf(refusal.engine), refusal.count,
          refusal.limit, refusal.available);
      continue;
    }
    log::Warning(
        "pool exhausted: engine {} ({}) asked for {} slabs, {} are free{}; "
        "held by: {}",
        Number(refusal.engine), state_.NameOf(refusal.engine), refusal.count,
        refusal.available, refusal.late ? ", none were returned in time" : "",
        state_.DescribeHolders());
  }
}

}  // namespace fineserve::server

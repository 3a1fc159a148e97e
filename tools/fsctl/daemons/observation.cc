#include "tools/fsctl/daemons/observation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/fsctl/processes/inspected_process.h"

namespace fineserve::fsctl {
namespace {

using ViewScoreboard = absl::StatusOr<abi::ViewScoreboardSnapshot>;

ViewScoreboard ReadHeld(const abi::Holder& held) {
  const absl::StatusOr<driver::Descriptor> fd = OpenHeld(held);
  if (!fd.ok()) return fd.status();
  return abi::ReadViewScoreboard(fd->get());
}

// Returns the process that writes the scoreboard, which is the one that hands
// out the blocks.
uint32_t WriterOf(const abi::EngineSnapshot& engine) {
  return engine.view.runs_pool != 0 ? engine.view.runs_pool : engine.view.pid;
}

bool IsScoreboardOf(const abi::ViewScoreboardSnapshot& scoreboard,
                    const abi::EngineSnapshot& engine, uint64_t epoch) {
  return scoreboard.pid == WriterOf(engine) &&
         scoreboard.engine_id == engine.id && scoreboard.epoch == epoch;
}

// Searches the scoreboards that `holder` has open. A daemon has those of all
// its engines open.
ViewScoreboard FindAmong(pid_t holder, const abi::EngineSnapshot& engine,
                         uint64_t epoch) {
  absl::Status trouble = absl::NotFoundError(
      absl::StrCat("pid ", WriterOf(engine), " holds no view scoreboard"));
  for (const abi::Holder& held : abi::FindHolders(holder)) {
    if (held.kind != abi::Holder::Kind::kViewScoreboard) continue;
    ViewScoreboard scoreboard = ReadHeld(held);
    if (!scoreboard.ok()) {
      trouble = scoreboard.status();
    } else if (IsScoreboardOf(*scoreboard, engine, epoch)) {
      return scoreboard;
    }
  }
  return trouble;
}

// Adds the memory that a suspended engine says it has released.
void AddGivenUp(const abi::EngineSnapshot& engine, Observation* seen) {
  if (engine.view.state != abi::ViewState::kSuspended) return;
  const auto own = FindScoreboard(static_cast<pid_t>(engine.view.pid));
  if (!own.ok() || own->created_most_bytes < own->created_bytes) return;
  seen->given_up_bytes[engine.id] =
      own->created_most_bytes - own->created_bytes;
}

void AddMemory(const abi::EngineSnapshot& engine, Observation* seen) {
  std::vector<abi::ScoreboardSnapshot> processes;
  for (const uint32_t pid : engine.member_pids) {
    auto own = FindScoreboard(static_cast<pid_t>(pid));
    if (own.ok()) processes.push_back(*std::move(own));
  }
  const EngineMemory memory = MemoryOf(processes);
  if (memory != EngineMemory()) seen->memory[engine.id] = memory;
}

}  // namespace

EngineMemory MemoryOf(const std::vector<abi::ScoreboardSnapshot>& processes) {
  EngineMemory sum;
  for (const abi::ScoreboardSnapshot& process : processes) {
    sum.resident_bytes += process.resident_bytes;
    sum.pinned_bytes += process.pinned_bytes;
    sum.evicted_bytes += process.evicted_bytes;
    sum.gate_waits += process.gate_waits;
  }
  return sum;
}

ViewScoreboard FindViewScoreboard(const abi::EngineSnapshot& engine,
                                  uint64_t epoch, uint32_t daemon_pid) {
  const auto pid = static_cast<pid_t>(WriterOf(engine));
  const absl::Status process = CheckProcess(pid);
  if (absl::IsNotFound(process)) {
    return absl::NotFoundError(absl::StrCat("pid ", pid, " is gone"));
  }
  if (!process.ok()) return process;
  ViewScoreboard scoreboard = FindAmong(pid, engine, epoch);
  if (scoreboard.ok()) return scoreboard;
  ViewScoreboard through_daemon =
      FindAmong(static_cast<pid_t>(daemon_pid), engine, epoch);
  return through_daemon.ok() ? through_daemon : scoreboard;
}

absl::StatusOr<Observation> Observe(const std::string& gpu) {
  absl::StatusOr<Pool> pool = ChoosePool(gpu);
  if (!pool.ok()) return pool.status();
  Observation seen;
  seen.pool = *std::move(pool);
  const abi::TableSnapshot& table = seen.pool.table;
  for (const abi::EngineSnapshot& engine : table.engines) {
    AddMemory(engine, &seen);
    if (engine.view.mode == abi::ViewMode::kNone) continue;
    seen.view_scoreboards.emplace(
        engine.id, FindViewScoreboard(engine, table.epoch, table.daemon_pid));
    AddGivenUp(engine, &seen);
  }
  seen.former_pools = abi::FindOldPools(table.gpu_uuid, table.epoch);
  seen.at = Now();
  return seen;
}

}  // namespace fineserve::fsctl

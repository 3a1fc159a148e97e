#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/status/troubles.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

// Time after which a dead engine's slabs in quarantine count as stuck: the
// driver forgets a process within seconds.
constexpr double kPatienceWithQuarantineS = 30;

bool HasView(const abi::EngineSnapshot& engine) {
  return engine.state == abi::EngineState::kAlive && engine.view.planes != 0;
}

// Adds dead engines whose slabs stay in quarantine for too long.
void AddQuarantine(const StatusInput& o, const LivePool& pool,
                   Findings* troubles) {
  for (const abi::EngineSnapshot& engine : pool.table.engines) {
    if (engine.state != abi::EngineState::kQuarantined) continue;
    const double since = SecondsSince(o.now.monotonic_ns, engine.since_ns);
    if (since < kPatienceWithQuarantineS) continue;
    const bool is_blind = pool.table.counters.process_lists_useless != 0;
    troubles->push_back(
        Trouble(true,
                absl::StrCat(engine.slabs_held, " slabs of the dead engine ",
                             engine.name, " stay in quarantine"),
                since,
                is_blind || engine.member_pids.empty()
                    ? "fsctl doctor says why the driver does not list processes"
                    : absl::StrCat("the driver still lists pid ",
                                   absl::StrJoin(engine.member_pids, ", "),
                                   ": end it")));
  }
}

// Adds engines that hold less than the policy has promised them.
void AddFloors(const LivePool& pool, Findings* troubles) {
  for (const abi::EngineSnapshot& engine : pool.table.engines) {
    const uint32_t promised = std::min(engine.view.floor, engine.view.wanted);
    if (!HasView(engine) || engine.view.leased >= promised) continue;
    troubles->push_back(Trouble(
        true,
        absl::StrCat("engine ", engine.name, " has ", engine.view.leased,
                     " slabs, less than its floor of ", engine.view.floor),
        -1,
        "fsctl slabs shows which engines hold the others; make the pool "
        "larger or "
        "floors smaller"));
  }
}

// Adds a pool whose daemon reports it as exhausted, and names the engines that
// want more than they have.
void AddExhaustion(const StatusInput& o, const LivePool& pool,
                   Findings* troubles) {
  if (pool.table.exhausted_ns == 0) return;
  std::vector<std::string> short_of;
  for (const abi::EngineSnapshot& engine : pool.table.engines) {
    const uint32_t wanted = std::min(engine.view.wanted, engine.view.cap);
    if (HasView(engine) && engine.view.leased < wanted) {
      short_of.push_back(engine.name);
    }
  }
  troubles->push_back(Trouble(
      true,
      absl::StrCat("the pool of ", GpuName(pool.table.gpu_uuid),
                   " is exhausted: ", absl::StrJoin(short_of, ", "),
                   short_of.size() == 1 ? " wants more" : " want more"),
      SecondsSince(o.now.monotonic_ns, pool.table.exhausted_ns),
      "fsctl top shows which engines hold it; make the pool larger, or move a "
      "model "
      "to another GPU"));
}

// Adds a pool that should outlive its daemon, but would now end with it.
void AddKeeper(const StatusInput& o, const LivePool& pool, Findings* troubles) {
  const abi::TableSnapshot& table = pool.table;
  if (table.keeper_lost_ns == 0) return;
  troubles->push_back(Trouble(
      true,
      absl::StrCat("the supervisor of fineserved ", table.daemon_pid, " (",
                   GpuName(table.gpu_uuid),
                   ") has ended: the pool is lost when this daemon ends"),
      SecondsSince(o.now.monotonic_ns, table.keeper_lost_ns),
      "when it suits: end the engines (fsctl drain, then fsctl up or the "
      "unit), "
      "stop fineserved, and start it with --supervise or by its unit"));
}

// Adds engines whose memory has left the GPU.
void AddEvicted(const StatusInput& o, const LivePool& pool,
                Findings* troubles) {
  for (const abi::EngineSnapshot& engine : pool.table.engines) {
    uint64_t bytes = 0;
    for (const abi::ScoreboardSnapshot& process : o.scoreboards) {
      const bool is_its =
          std::count(engine.member_pids.begin(), engine.member_pids.end(),
                     process.pid) != 0;
      if (is_its) bytes += process.evicted_bytes;
    }
    if (bytes == 0) continue;
    troubles->push_back(
        Trouble(false,
                absl::StrCat("engine ", engine.name, " is evicted: its ",
                             Size(bytes), " are on the host"),
                -1,
                absl::StrCat("a request brings it back, or fsctl activate ",
                             engine.name)));
  }
}

// Returns why this allocation, which is KV, was left to the driver; null if it
// was not.
const char* WhyNotPooled(const abi::DecisionSnapshot& decision) {
  if (decision.verdict != abi::Verdict::kPassThrough) return nullptr;
  switch (decision.reason) {
    case abi::Reason::kNoDaemon:
      return "no fineserved ran when it allocated";
    case abi::Reason::kRefused:
      return "fineserved refused it";
    case abi::Reason::kOtherGpu:
      return "it had joined the fineserved of another GPU";
    default:
      return nullptr;
  }
}

// Adds engines whose KV is not shared, which no other tool shows. What they
// have freed since then is unknown.
void AddUnpooledKv(const StatusInput& o, Findings* troubles) {
  for (const abi::ScoreboardSnapshot& process : o.scoreboards) {
    uint64_t bytes = 0;
    const abi::DecisionSnapshot* first = nullptr;
    for (const abi::DecisionSnapshot& decision : process.decisions) {
      if (WhyNotPooled(decision) == nullptr) continue;
      bytes += decision.bytes;
      if (first == nullptr) first = &decision;
    }
    if (first == nullptr) continue;
    troubles->push_back(
        Trouble(true,
                absl::StrCat(process.program, " (pid ", process.pid,
                             ") allocated ", Size(bytes),
                             " of KV outside the pool: ", WhyNotPooled(*first)),
                SecondsSince(o.now.monotonic_ns, first->time_ns),
                absl::StrCat("restart it once the GPU's fineserved runs; fsctl "
                             "explain ",
                             process.pid, " shows each allocation")));
  }
}

Finding TroubleOfOrphan(const StatusInput& o, const OrphanedPool& orphan) {
  const abi::TableSnapshot& table = orphan.table;
  const double since = SilenceOf(o, GpuName(table.gpu_uuid));
  const std::string who = absl::StrCat("daemon ", table.daemon_pid, " of ",
                                       GpuName(table.gpu_uuid));
  if (!orphan.daemon_exists) {
    return Trouble(
        true, who + " is dead; engines go on without it", since,
        "start fineserved again; unless it was supervised, then fsctl "
        "restart --rolling");
  }
  return Trouble(
      true,
      absl::StrCat(who, " does not answer; engines go on without it",
                   orphan.whereabouts.empty() ? "" : ": ", orphan.whereabouts),
      since,
      absl::StrCat("fsctl stack ", table.daemon_pid,
                   "; if it stays so, kill -9 ", table.daemon_pid,
                   table.is_kept()
                       ? ": the next one takes the pool over"
                       : ", start fineserved again, then fsctl restart "
                         "--rolling"));
}

}  // namespace

bool IsOfOrphan(const StatusInput& o, const std::string& text) {
  return std::any_of(
      o.orphans.begin(), o.orphans.end(), [&](const OrphanedPool& orphan) {
        return absl::StrContains(text, GpuName(orphan.table.gpu_uuid));
      });
}

double SilenceOf(const StatusInput& o, const std::string& text) {
  for (const auto* list : {&o.found.silent, &o.found.gone}) {
    for (const SilentProcess& process : *list) {
      const std::string name =
          std::filesystem::path(process.door).stem().string();
      if (absl::StrContains(text, name)) {
        return AgeNow(o.now, process.heard_ns, process.for_s);
      }
    }
  }
  return -1;
}

Findings TroublesOfPools(const StatusInput& o) {
  Findings troubles;
  for (const std::string& dead : o.dead_daemons) {
    if (IsOfOrphan(o, dead)) continue;
    troubles.push_back(
        Trouble(true, dead, SilenceOf(o, dead), "start fineserved again"));
  }
  for (const OrphanedPool& orphan : o.orphans) {
    troubles.push_back(TroubleOfOrphan(o, orphan));
  }
  for (const LivePool& pool : o.pools) {
    if (!pool.former.empty()) {
      troubles.push_back(
          Trouble(true, pool.former, -1,
                  "fsctl up restarts its own engines, one after another; "
                  "restart the others"));
    }
    AddKeeper(o, pool, &troubles);
    AddQuarantine(o, pool, &troubles);
    AddFloors(pool, &troubles);
    AddExhaustion(o, pool, &troubles);
    AddEvicted(o, pool, &troubles);
  }
  AddUnpooledKv(o, &troubles);
  return troubles;
}

}  // namespace fineserve::fsctl

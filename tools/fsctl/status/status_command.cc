
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/contract/abi/holders.h"
#include "daemon/contract/abi/old_pool.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/fleet/config/fleet.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/daemons/ask_daemons.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/stack/process_stacks.h"
#include "tools/fsctl/status/troubles.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {
namespace {

// Time to wait for a process that has given no sign of life for longer than
// kFindPatience, and so hangs.
constexpr absl::Duration kHungPatience = absl::Milliseconds(200);

// Says in a sentence why a process may not answer. With `of_tree`, the cause
// may also be a process that descends from it, as for an engine.
std::string WhereaboutsOf(pid_t pid, bool of_tree) {
  const std::string thaws = ThawCommand(pid);
  if (!thaws.empty()) {
    return absl::StrCat("it is frozen by its cgroup; thaw it: ", thaws);
  }
  const std::string full = FullDescriptorTable(pid);
  if (!full.empty()) return full;
  if (of_tree) return SummaryOfTree(pid);
  const absl::StatusOr<ProcessStacks> stacks = StacksOf(pid);
  return stacks.ok() ? Summary(*stacks) : "";
}

void LookAtPools(const std::string& folder, StatusInput* o) {
  std::vector<absl::Status> dead;
  std::vector<Pool> live = LivePools(finding::ListSockets(folder), &dead);
  for (const absl::Status& trouble : dead) {
    o->dead_daemons.emplace_back(trouble.message());
  }
  if (live.empty() && dead.empty()) {
    const absl::Status none = ChoosePool("").status();
    if (absl::IsPermissionDenied(none)) o->closed = std::string(none.message());
  }
  for (Pool& orphan : OrphanedPools(live)) {
    OrphanedPool& added = o->orphans.emplace_back();
    added.daemon_exists = orphan.daemon_exists;
    if (orphan.daemon_exists) {
      added.whereabouts =
          WhereaboutsOf(static_cast<pid_t>(orphan.table.daemon_pid),
                        /*of_tree=*/false);
    }
    added.table = std::move(orphan.table);
  }
  for (Pool& pool : live) {
    std::string former =
        abi::Describe(abi::FindOldPools(pool.table.gpu_uuid, pool.table.epoch));
    o->pools.push_back({std::move(pool.table), std::move(former)});
  }
}

void LookAtScoreboards(StatusInput* o) {
  for (const abi::Holder& holder : abi::FindHolders()) {
    if (holder.kind != abi::Holder::Kind::kEngineScoreboard) continue;
    const absl::StatusOr<driver::Descriptor> held = OpenHeld(holder);
    if (!held.ok()) continue;
    auto scoreboard = abi::ReadScoreboard(held->get());
    // Skips scoreboards of other processes, since a daemon also holds those of
    // its members.
    const bool own =
        scoreboard.ok() && scoreboard->pid == static_cast<uint32_t>(holder.pid);
    if (own) o->scoreboards.push_back(*std::move(scoreboard));
  }
}

void AskFleetDaemons(StatusInput* o) {
  absl::StatusOr<std::vector<FleetDaemon>> daemons = FindFleetDaemons("");
  if (!daemons.ok()) return;  // none has a fleet
  // Asking a silent daemon again would only cause a second wait.
  const auto hung = std::stable_partition(
      daemons->begin(), daemons->end(), [o](const FleetDaemon& daemon) {
        return SilenceOf(*o, daemon.gpu) <=
               absl::ToDoubleSeconds(kFindPatience);
      });
  for (auto it = hung; it != daemons->end(); ++it) {
    o->words.emplace_back().gpu = it->gpu;
  }
  daemons->erase(hung, daemons->end());
  // Notes the time before it asks, since one daemon may keep fsctl waiting
  // although the others answer at once.
  const uint64_t heard_ns = Now().monotonic_ns;
  auto models = AskDaemons(*daemons, wire::Encode(0, 0, wire::ModelsQueryT()),
                           absl::ToChronoMilliseconds(kFindPatience));
  std::vector<FleetDaemon> answering;
  for (size_t i = 0; i < daemons->size(); ++i) {
    if (models[i].ok()) answering.push_back((*daemons)[i]);
  }
  const uint64_t plan_heard_ns = Now().monotonic_ns;
  auto plans = AskDaemons(answering, wire::Encode(0, 0, wire::PlanQueryT()),
                          absl::ToChronoMilliseconds(kFindPatience));
  auto plan = plans.begin();
  for (size_t i = 0; i < daemons->size(); ++i) {
    DaemonWord& word = o->words.emplace_back();
    word.gpu = (*daemons)[i].gpu;
    word.heard_ns = heard_ns;
    word.plan_heard_ns = plan_heard_ns;
    if (!models[i].ok()) continue;
    if (auto* reported = models[i]->body.AsModels())
      word.models = std::move(*reported);
    if (plan->ok()) {
      if (auto* reported = (*plan)->body.AsPlanState()) {
        word.plan = std::move(*reported);
      }
    }
    ++plan;
  }
}

void ReadFleets(StatusInput* o) {
  std::set<std::string> paths;
  for (const FleetProcess& process : o->found.processes) {
    if (!process.state.fleet_path.empty()) {
      paths.insert(process.state.fleet_path);
    }
  }
  for (const std::string& path : paths) {
    FleetOnDisk& fleet = o->fleets.emplace_back();
    fleet.path = path;
    // If the file is gone, its folder changed when it was removed.
    const std::string folder = std::filesystem::path(path).parent_path();
    struct stat file;
    if (stat(path.c_str(), &file) == 0 || stat(folder.c_str(), &file) == 0) {
      const absl::Duration age =
          absl::Now() - absl::TimeFromTimespec(file.st_mtim);
      fleet.changed_s = std::max(0.0, absl::ToDoubleSeconds(age));
    }
    const absl::StatusOr<config::Fleet> read = config::ReadFleet(path);
    if (read.ok()) {
      fleet.fleet = config::Describe(*read);
      fleet.proxy =
          absl::StrCat(read->proxy.listen_host, ":", read->proxy.listen_port);
      fleet.starts_engines = std::any_of(
          read->engines.begin(), read->engines.end(),
          [](const config::FleetEngine& e) { return !e.command.empty(); });
    } else {
      fleet.error = std::string(read.status().message());
    }
  }
}

// Adds the place at which each engine and program that does not answer hangs,
// since a process can be examined while it hangs.
void LookAtStacks(StatusInput* o) {
  for (const FleetProcess& up : o->found.processes) {
    for (const apply::EngineState& engine : up.state.engines) {
      if (engine.state != "silent" || engine.pid <= 0) continue;
      o->whereabouts[engine.pid] =
          WhereaboutsOf(static_cast<pid_t>(engine.pid), /*of_tree=*/true);
    }
  }
  // Adds the stacks of the fsctl up itself, without those of its engines.
  for (const SilentProcess& silent : o->found.silent) {
    if (silent.pid <= 0) continue;
    o->whereabouts[silent.pid] = WhereaboutsOf(silent.pid, /*of_tree=*/false);
  }
}

void LookAtDisks(const std::string& folder, StatusInput* o) {
  std::vector<pid_t> writers;
  for (const FleetProcess& process : o->found.processes) {
    writers.push_back(process.state.pid);
  }
  o->full_disks = FullDisks({folder}, writers);
  // Takes the age from the processes, which watch the disk of the runtime
  // folder.
  for (FullDisk& disk : o->full_disks) {
    if (disk.path != folder) continue;
    for (const FleetProcess& process : o->found.processes) {
      if (process.state.full_disk_s < 0) continue;
      disk.for_s = std::max(disk.for_s, AgeNow(o->now, process.heard_ns,
                                               process.state.full_disk_s));
    }
  }
}

int RunStatus(const Globals& globals) {
  const std::string folder = finding::RuntimeFolder();
  StatusInput observed;
  LookAtPools(folder, &observed);
  LookAtScoreboards(&observed);
  observed.found = FindProcesses(folder, kHungPatience);
  LookAtStacks(&observed);
  AskFleetDaemons(&observed);
  ReadFleets(&observed);
  observed.machines = cluster::ReadView(folder);
  observed.now = Now();
  LookAtDisks(folder, &observed);
  const Findings troubles = TroublesOf(observed);
  Print(globals.json ? StatusJson(observed, troubles)
                     : StatusText(observed, troubles, globals.color));
  return AnyWrong(troubles) ? kExitBadAnswer : kExitOk;
}

}  // namespace

void AddStatus(Commands& c) {
  c.Add("status", "Show what is wrong, since when, and what mends it",
        "  fsctl status                    exit code 1 if anything is "
        "wrong\n"
        "  fsctl status --json | jq '.troubles[].what'\n",
        RunStatus);
}

}  // namespace fineserve::fsctl

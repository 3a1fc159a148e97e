#include "tools/fsctl/upgrade/engine_links.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/abi/holders.h"
#include "daemon/abi/scoreboard_reader.h"
#include "tools/fsctl/process/inspected_process.h"
#include "tools/fsctl/process/read_file.h"

namespace fineserve::fsctl {
namespace {

using abi::Holder;

// The scoreboard that the process itself writes; 0 if there is none.
uint64_t OwnScoreboard(uint32_t pid) {
  for (const Holder& holder : abi::FindHolders(static_cast<pid_t>(pid))) {
    if (holder.kind != Holder::Kind::kEngineScoreboard) continue;
    const absl::StatusOr<driver::Descriptor> fd = OpenHeld(holder);
    if (!fd.ok()) continue;
    const auto scoreboard = abi::ReadScoreboard(fd->get());
    if (scoreboard.ok() && scoreboard->pid == pid) return holder.inode;
  }
  return 0;
}

bool IsStopped(uint32_t pid) {
  const std::string status = ReadFile(absl::StrCat("/proc/", pid, "/status"));
  return absl::StrContains(status, "State:\tT") ||
         absl::StrContains(status, "State:\tt");
}

bool HasEnded(uint32_t pid) {
  const std::string status = ReadFile(absl::StrCat("/proc/", pid, "/status"));
  return status.empty() || absl::StrContains(status, "State:\tZ");
}

// True if the process has a view's thread, which looks for the next daemon.
bool JoinsByItself(const abi::EngineSnapshot& engine, uint32_t pid) {
  return engine.view.state == abi::ViewState::kActive &&
         (engine.view.pid == pid || engine.view.runs_pool == pid);
}

}  // namespace

Links LinksOf(const abi::TableSnapshot& table) {
  Links links;
  for (const abi::EngineSnapshot& engine : table.engines) {
    if (engine.state != abi::EngineState::kAlive) continue;
    for (uint32_t pid : engine.member_pids) {
      const uint64_t scoreboard = OwnScoreboard(pid);
      if (scoreboard != 0) links[pid] = scoreboard;
    }
  }
  return links;
}

Joining JoinedSince(const Links& before, const abi::TableSnapshot& table) {
  Joining joining;
  for (const abi::EngineSnapshot& engine : table.engines) {
    if (engine.state != abi::EngineState::kAlive) continue;
    for (uint32_t pid : engine.member_pids) {
      const auto former = before.find(pid);
      if (former == before.end() || HasEnded(pid)) continue;
      const uint64_t now = OwnScoreboard(pid);
      if (now != 0 && now != former->second) {
        ++joining.joined;
      } else if (JoinsByItself(engine, pid) && !IsStopped(pid)) {
        joining.missing.push_back(
            absl::StrCat("pid ", pid, " (engine ", engine.name, ")"));
      } else {
        ++joining.later;
      }
    }
  }
  return joining;
}

}  // namespace fineserve::fsctl

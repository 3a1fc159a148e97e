#include "tools/fsctl/status/version_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/version.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "tools/fsctl/apply/fleet_processes.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/processes/install_paths.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

constexpr char kDeleted[] = " (deleted)";  // the kernel's, in /proc/PID/maps

void AddProcesses(std::vector<VersionedPart>* parts) {
  const FoundProcesses found = FindProcesses(finding::RuntimeFolder());
  for (const FleetProcess& process : found.processes) {
    const apply::Answer& state = process.state;
    parts->push_back({state.process, state.pid, state.version, state.gpu});
  }
  for (const SilentProcess& silent : found.silent) {
    parts->push_back({silent.door, silent.pid, "", silent.why});
  }
}

// A daemon without a fleet has no door, and its table names only the ABI.
void AddDaemon(const Pool& pool, std::vector<VersionedPart>* parts) {
  const int64_t pid = pool.table.daemon_pid;
  const bool known =
      std::any_of(parts->begin(), parts->end(),
                  [pid](const VersionedPart& part) { return part.pid == pid; });
  if (known || !pool.daemon_answers()) return;
  parts->push_back({"fineserved", pid, "",
                    absl::StrCat("runs without a fleet file: it speaks ABI ",
                                 abi::kAbiVersion)});
}

VersionedPart EngineOf(const std::string& name, uint32_t pid) {
  VersionedPart part = {absl::StrCat("engine ", name), pid, ""};
  const std::string shim = ReadMap(static_cast<pid_t>(pid)).PathOf(kShimName);
  part.is_former = absl::EndsWith(shim, kDeleted);
  if (part.is_former) {
    part.note = absl::StrCat(
        "its shim was replaced after it had started: restart it for the new "
        "one (fsctl restart ",
        name, ")");
  } else {
    part.note = shim;
  }
  return part;
}

std::vector<VersionedPart> FindParts() {
  std::vector<VersionedPart> parts = {
      {"fsctl", 0, FINESERVE_VERSION, absl::StrCat("ABI ", abi::kAbiVersion)}};
  AddProcesses(&parts);
  std::vector<absl::Status> troubles;
  const std::vector<Pool> pools = AllPools(&troubles);
  for (const Pool& pool : pools) AddDaemon(pool, &parts);
  for (const Pool& pool : pools) {
    for (const abi::EngineSnapshot& engine : pool.table.engines) {
      for (const uint32_t pid : engine.member_pids) {
        parts.push_back(EngineOf(engine.name, pid));
      }
    }
  }
  return parts;
}

bool AnyFormer(const std::vector<VersionedPart>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const VersionedPart& part) { return part.is_former; });
}

}  // namespace

void MarkFormer(std::vector<VersionedPart>* parts) {
  for (VersionedPart& part : *parts) {
    part.is_former |=
        !part.version.empty() && part.version != parts->front().version;
  }
}

std::string VersionsText(const std::vector<VersionedPart>& parts, bool color) {
  TextTable table({"PART", ">PID", "VERSION", "NOTE"});
  for (const VersionedPart& part : parts) {
    table.Add({part.name,
               part.pid == 0 ? "" : absl::StrCat(part.pid),
               {part.version.empty() ? "?" : part.version,
                part.is_former ? Color::kYellow : Color::kNone},
               part.note});
  }
  return table.Render(color);
}

std::string VersionsJson(const std::vector<VersionedPart>& parts) {
  nlohmann::ordered_json json = {{"same", !AnyFormer(parts)},
                                 {"abi", abi::kAbiVersion},
                                 {"parts", nlohmann::ordered_json::array()}};
  for (const VersionedPart& part : parts) {
    nlohmann::ordered_json one = {{"part", part.name}};
    if (part.pid != 0) one["pid"] = part.pid;
    one["version"] = nullptr;
    if (!part.version.empty()) one["version"] = part.version;
    one["former"] = part.is_former;
    one["note"] = part.note;
    json["parts"].push_back(std::move(one));
  }
  return JsonText(json);
}

namespace {

int RunVersion(const Globals& globals) {
  std::vector<VersionedPart> parts = FindParts();
  MarkFormer(&parts);
  Print(globals.json ? VersionsJson(parts)
                     : VersionsText(parts, globals.color));
  return AnyFormer(parts) ? kExitBadAnswer : kExitOk;
}

}  // namespace

void AddVersion(Commands& c) {
  c.Add("version", "Show the release of each part that runs on this machine",
        "  fsctl version                   exit code 1 if they differ\n"
        "  fsctl version --json | jq '.parts[] | select(.former)'\n",
        RunVersion);
}

}  // namespace fineserve::fsctl

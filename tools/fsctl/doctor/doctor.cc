#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "kernels/driver/emulated_folder.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/daemons/find_engine.h"
#include "tools/fsctl/doctor/machine_checks.h"
#include "tools/fsctl/doctor/process_checks.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

using Severity = Finding::Severity;

// cuInit takes seconds on a machine with many GPUs.
constexpr absl::Duration kDriverTimeout = absl::Seconds(30);

// The checks of the daemons' answers.
struct Daemons {
  Findings checks;
  bool answered = false;
  bool emulated = false;
};

void AskDaemon(const std::string& socket, Daemons* daemons) {
  const absl::StatusOr<abi::ObserverLink> link = abi::ConnectObserver(socket);
  if (!link.ok()) {
    daemons->checks.push_back(CheckDaemonTrouble(link.status()));
    return;
  }
  const absl::StatusOr<abi::TableSnapshot> table =
      abi::ReadTable(link->table.get());
  if (!table.ok()) {
    daemons->checks.push_back(CheckDaemonTrouble(table.status()));
    return;
  }
  daemons->answered = true;
  daemons->emulated |= (table->flags & abi::kTableEmulatedDevice) != 0;
  daemons->checks.push_back(
      {Severity::kOk, "daemon",
       absl::StrCat("pid ", table->daemon_pid, ", ABI version ",
                    abi::kAbiVersion, ", ", Size(table->pool_bytes()), " on ",
                    GpuName(table->gpu_uuid)),
       ""});
  daemons->checks.push_back(CheckPidNamespace(*link));
  daemons->checks.push_back(CheckQuarantine(*table));
  daemons->checks.push_back(CheckFormerPools(*table));
}

// Checks the fleet's machines if this machine is one of several.
void CheckMachines(const std::string& folder, Findings* checks) {
  const absl::StatusOr<cluster::FleetView> view = cluster::ReadView(folder);
  if (absl::IsNotFound(view.status())) return;
  const std::string trouble = cluster::TroubleOf(view, Now().monotonic_ns);
  if (!trouble.empty()) {
    const size_t fix = trouble.rfind("; ");
    checks->push_back(
        {Severity::kWrong, "machines", trouble.substr(0, fix),
         fix == std::string::npos ? "" : trouble.substr(fix + 2)});
    return;
  }
  const auto alive =
      std::count_if(view->machines.begin(), view->machines.end(),
                    [](const cluster::SeenMachine& m) { return m.is_alive; });
  const auto all = static_cast<ptrdiff_t>(view->machines.size());
  checks->push_back(
      {alive == all ? Severity::kOk : Severity::kNote, "machines",
       absl::StrCat(alive, " of ", all, " alive, ",
                    view->leader.empty() ? "no daemon" : view->leader,
                    " leads"),
       alive == all ? "" : "see fsctl nodes"});
  for (const cluster::Oddity& odd : cluster::OdditiesOf(*view, view->machine)) {
    checks->push_back({Severity::kNote, "machines", odd.what, odd.cure});
  }
}

Daemons AskDaemons(const std::string& folder, const std::string& gpu) {
  Daemons daemons;
  for (const std::string& socket : finding::ListSockets(folder, gpu)) {
    AskDaemon(socket, &daemons);
  }
  if (daemons.checks.empty()) {
    daemons.checks.push_back({Severity::kNote, "daemon", "none is running",
                              "fineserved --gpu 0 --pool 16GiB"});
  }
  if (!daemons.answered) {
    // Engines that outlive their daemon still show whether its device is
    // emulated.
    for (const Pool& pool : OrphanedPools({})) {
      daemons.emulated |= (pool.table.flags & abi::kTableEmulatedDevice) != 0;
    }
    daemons.checks.push_back({Severity::kSkipped, "pid namespace",
                              "not checked: no daemon answered", ""});
  }
  return daemons;
}

Findings Diagnose(const Globals& globals) {
  const std::string folder = finding::RuntimeFolder();
  Findings checks = {CheckRuntimeFolder(folder)};
  const auto append = [&](Findings more) {
    std::move(more.begin(), more.end(), std::back_inserter(checks));
  };
  Daemons daemons = AskDaemons(folder, globals.gpu);
  append(std::move(daemons.checks));
  CheckMachines(folder, &checks);
  append({CheckShim()});
  const std::string libraries =
      daemons.emulated ? driver::EmulatedFolder() + "/" : "";
  const std::string library = libraries + "libcuda.so.1";
  append(CheckDriver(library, ProbeDriver(library, kDriverTimeout)));
  const absl::StatusOr<std::vector<GpuMode>> modes =
      GpuModes(libraries + "libnvidia-ml.so.1", kDriverTimeout);
  append({CheckMig(modes), CheckPersistence(modes), CheckComputeMode(modes),
          CheckMps(), CheckPidfd(), CheckMemfdSealing(), CheckOpenFiles()});
  return checks;
}

constexpr absl::Duration kNvmlTimeout = absl::Seconds(30);
// Heuristic: contexts, modules and cuBLAS workspaces of one process.
constexpr uint64_t kDriversOwnBytes = uint64_t{1} << 30;

// Returns the NVML beside the driver that the process has loaded, as in a
// bundle or a build folder; otherwise the system's NVML.
std::string NvmlOf(const AddressMap& map) {
  const std::string driver = map.PathOf("libcuda.so");
  const std::string beside =
      driver.substr(0, driver.rfind('/') + 1) + "libnvidia-ml.so.1";
  return access(beside.c_str(), R_OK) == 0 ? beside : "libnvidia-ml.so.1";
}

// The emulated driver has no contexts, modules or workspaces, but rounds small
// allocations up to granules of 2 MiB.
constexpr uint64_t kEmulatedOwnBytes = uint64_t{32} << 20;

uint64_t OwnBytes(const AddressMap& map) {
  return absl::StrContains(map.PathOf("libcuda.so"), "/emucuda/")
             ? kEmulatedOwnBytes
             : kDriversOwnBytes;
}

Finding Reconcile(pid_t pid, const AddressMap& map,
                  const abi::ScoreboardSnapshot& scoreboard) {
  return CheckMemory(scoreboard, DriversBytesOf(pid, NvmlOf(map), kNvmlTimeout),
                     OwnBytes(map));
}

Findings DiagnoseProcess(pid_t pid) {
  const AddressMap map = ReadMap(pid);
  Findings checks = {
      CheckPreload(map, ReadFile(absl::StrCat("/proc/", pid, "/environ")))};
  const auto scoreboard = FindScoreboard(pid);
  if (!scoreboard.ok()) {
    const bool none = absl::IsNotFound(scoreboard.status());
    checks.push_back(
        {none ? Severity::kSkipped : Severity::kWrong, "scoreboard",
         none ? "no decisions yet: the process has made no large GPU allocation"
              : std::string(scoreboard.status().message()),
         none ? "" : "install the shim and fsctl from the same release"});
    // If nothing large went through the hooks, all large memory has bypassed
    // them.
    if (none) checks.push_back(Reconcile(pid, map, {}));
    return checks;
  }
  checks.push_back(CheckLink(*scoreboard));
  checks.push_back(CheckGpus(*scoreboard));
  Findings hooks = CheckHooks(*scoreboard, map);
  std::move(hooks.begin(), hooks.end(), std::back_inserter(checks));
  checks.push_back(CheckNamespaces(*scoreboard));
  checks.push_back(Reconcile(pid, map, *scoreboard));
  return checks;
}

struct DoctorOptions {
  std::string engine;  // whose process is checked; empty: the machine
};

int RunDoctor(const Globals& globals, const DoctorOptions& options) {
  if (options.engine.empty()) return PrintReport(globals, Diagnose(globals));
  const absl::StatusOr<pid_t> pid = OneProcessOf(globals.gpu, options.engine);
  if (!pid.ok()) return FailWithoutProcess(pid.status());
  return PrintReport(globals, DiagnoseProcess(*pid));
}

}  // namespace

void AddDoctor(Commands& c) {
  const auto [command, o] = c.Add(
      "doctor", "Check this machine or one process for problems",
      "  fsctl doctor\n"
      "  fsctl doctor llama-a            which hooks it uses, what bypasses "
      "them\n"
      "  fsctl doctor --json | jq '.checks[] | select(.result==\"FAIL\")'\n",
      RunDoctor);
  command->add_option("ENGINE", o->engine,
                      "Engine to check instead of the machine: its name, or a "
                      "process id");
}

}  // namespace fineserve::fsctl

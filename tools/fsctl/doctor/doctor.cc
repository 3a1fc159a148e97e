#include "tools/fsctl/doctor/doctor.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "kernels/driver/emulated_folder.h"
#include "tools/fsctl/doctor/daemon_checks.h"
#include "tools/fsctl/doctor/machine_checks.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

using Result = Check::Result;

// cuInit takes seconds on a machine with many GPUs.
constexpr absl::Duration kDriverTimeout = absl::Seconds(30);

// Checks of the daemons' answers.
struct Daemons {
  std::vector<Check> checks;
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
      {Result::kOk, "daemon",
       absl::StrCat("pid ", table->daemon_pid, ", ABI version ",
                    abi::kAbiVersion, ", ", Size(table->pool_bytes()), " on ",
                    GpuName(table->gpu_uuid)),
       ""});
  daemons->checks.push_back(CheckPidNamespace(*link));
  daemons->checks.push_back(CheckQuarantine(*table));
  daemons->checks.push_back(CheckFormerPools(*table));
}

// Checks the fleet's machines, if this one is one of several.
void CheckMachines(const std::string& folder, std::vector<Check>* checks) {
  const absl::StatusOr<cluster::FleetView> view = cluster::ReadView(folder);
  if (absl::IsNotFound(view.status())) return;
  const std::string trouble = cluster::TroubleOf(view, Now().monotonic_ns);
  if (!trouble.empty()) {
    const size_t fix = trouble.rfind("; ");
    checks->push_back(
        {Result::kFail, "machines", trouble.substr(0, fix),
         fix == std::string::npos ? "" : trouble.substr(fix + 2)});
    return;
  }
  const auto alive =
      std::count_if(view->machines.begin(), view->machines.end(),
                    [](const cluster::SeenMachine& m) { return m.is_alive; });
  const auto all = static_cast<ptrdiff_t>(view->machines.size());
  checks->push_back(
      {alive == all ? Result::kOk : Result::kWarn, "machines",
       absl::StrCat(alive, " of ", all, " alive, ",
                    view->leader.empty() ? "no daemon" : view->leader,
                    " leads"),
       alive == all ? "" : "see fsctl nodes"});
  for (const cluster::Oddity& odd : cluster::OdditiesOf(*view, view->machine)) {
    checks->push_back({Result::kWarn, "machines", odd.what, odd.cure});
  }
}

Daemons AskDaemons(const std::string& folder, const std::string& gpu) {
  Daemons daemons;
  for (const std::string& socket : finding::ListSockets(folder, gpu)) {
    AskDaemon(socket, &daemons);
  }
  if (daemons.checks.empty()) {
    daemons.checks.push_back({Result::kWarn, "daemon", "none is running",
                              "fineserved --gpu 0 --pool 16GiB"});
  }
  if (!daemons.answered) {
    // Engines that outlive their daemon still show whether its device is
    // emulated.
    for (const Pool& pool : OrphanedPools({})) {
      daemons.emulated |= (pool.table.flags & abi::kTableEmulatedDevice) != 0;
    }
    daemons.checks.push_back({Result::kSkipped, "pid namespace",
                              "not checked: no daemon answered", ""});
  }
  return daemons;
}

std::vector<Check> Diagnose(const Globals& globals) {
  const std::string folder = finding::RuntimeFolder();
  std::vector<Check> checks = {CheckRuntimeFolder(folder)};
  const auto append = [&](std::vector<Check> more) {
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

}  // namespace

int RunDoctor(const Globals& globals) {
  return PrintReport(globals, Diagnose(globals));
}

}  // namespace fineserve::fsctl

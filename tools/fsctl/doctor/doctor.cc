#include "tools/fsctl/doctor/doctor.h"

#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/abi/observer_link.h"
#include "daemon/abi/table_reader.h"
#include "tools/fsctl/doctor/machine_checks.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/process/install_paths.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

using Result = Check::Result;

// cuInit takes seconds on a machine with many GPUs.
constexpr absl::Duration kDriverTimeout = absl::Seconds(30);

Check DaemonTroubleCheck(const absl::Status& status) {
  const std::string message(status.message());
  if (absl::IsUnavailable(status)) {
    return {Result::kWarn, "daemon", message,
            "start fineserved again: the daemon that left this socket is "
            "dead"};
  }
  const char* fix = absl::IsFailedPrecondition(status)
                        ? "restart fineserved and its engines after an upgrade"
                        : "see the daemon's log";
  return {Result::kFail, "daemon", message, fix};
}

// SO_PEERCRED gives the daemon's pid as this process sees it, the Welcome gives
// it as the daemon sees it. They differ across pid namespaces.
Check CheckPidNamespace(const abi::ObserverLink& link) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  getsockopt(link.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
  if (static_cast<uint32_t>(peer.pid) == link.welcome.daemon_pid) {
    return {Result::kOk, "pid namespace", "shared with the daemon", ""};
  }
  return {Result::kFail, "pid namespace",
          absl::StrCat("the daemon has pid ", link.welcome.daemon_pid,
                       " in its own pid namespace, but ", peer.pid, " in ours"),
          "run fsctl in the daemon's pid namespace (docker run --pid=host)"};
}

// The daemon has asked the driver at least once: when it started.
Check CheckQuarantine(const abi::TableSnapshot& table) {
  if (table.counters.process_lists_useless == 0) {
    return {Result::kOk, "quarantine", "the driver lists the GPU's processes",
            ""};
  }
  return {Result::kFail, "quarantine",
          "the driver does not list the GPU's processes by their pids here, so "
          "slabs of dead engines stay quarantined",
          "share the host's pid namespace (docker run --pid=host) and install "
          "NVML (libnvidia-ml.so.1)"};
}

// What the daemons' answers show.
struct Daemons {
  std::vector<Check> checks;
  bool answered = false;
  bool emulated = false;
};

void AskDaemon(const std::string& socket, Daemons* daemons) {
  const absl::StatusOr<abi::ObserverLink> link = abi::ConnectObserver(socket);
  if (!link.ok()) {
    daemons->checks.push_back(DaemonTroubleCheck(link.status()));
    return;
  }
  const absl::StatusOr<abi::TableSnapshot> table = ReadTable(link->table.get());
  if (!table.ok()) {
    daemons->checks.push_back(DaemonTroubleCheck(table.status()));
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
}

Daemons AskDaemons(const std::string& folder, const std::string& gpu) {
  Daemons daemons;
  const bool one = IsSocketPath(gpu);
  for (const std::string& socket :
       one ? std::vector<std::string>{gpu} : abi::ListSockets(folder)) {
    if (one || absl::StrContains(absl::AsciiStrToLower(socket),
                                 absl::AsciiStrToLower(gpu))) {
      AskDaemon(socket, &daemons);
    }
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
  const std::string folder = SocketFolder();
  std::vector<Check> checks = {CheckRuntimeFolder(folder)};
  const auto append = [&](std::vector<Check> more) {
    std::move(more.begin(), more.end(), std::back_inserter(checks));
  };
  Daemons daemons = AskDaemons(folder, globals.gpu);
  append(std::move(daemons.checks));
  append({CheckShim()});
  const std::string library =
      daemons.emulated ? EmucudaFolder() + "/libcuda.so.1" : "libcuda.so.1";
  append(CheckDriver(library, ProbeDriver(library, kDriverTimeout)));
  append({{Result::kSkipped, "MIG", "not checked", ""},
          CheckMps(),
          CheckPidfd(),
          CheckMemfdSealing(),
          CheckOpenFiles()});
  return checks;
}

}  // namespace

int RunDoctor(const Globals& globals) {
  return PrintReport(globals, Diagnose(globals));
}

}  // namespace fineserve::fsctl

#include <sys/types.h>
#include <unistd.h>

#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/fsctl/doctor/doctor.h"
#include "tools/fsctl/doctor/nvml_probe.h"
#include "tools/fsctl/doctor/process_checks.h"
#include "tools/fsctl/pool/engine_processes.h"
#include "tools/fsctl/process/inspected_process.h"
#include "tools/fsctl/process/read_file.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {
namespace {

constexpr absl::Duration kNvmlTimeout = absl::Seconds(30);
// Heuristic: contexts, modules and cuBLAS workspaces of one process.
constexpr uint64_t kDriversOwnBytes = uint64_t{1} << 30;

// The NVML beside the driver that the process has loaded, as in a bundle or a
// build folder; else the system's.
std::string NvmlOf(const AddressMap& map) {
  const std::string driver = map.PathOf("libcuda.so");
  const std::string beside =
      driver.substr(0, driver.rfind('/') + 1) + "libnvidia-ml.so.1";
  return access(beside.c_str(), R_OK) == 0 ? beside : "libnvidia-ml.so.1";
}

// The emulated driver needs none of these, but rounds small allocations up to
// granules of 2 MiB.
constexpr uint64_t kEmulatedOwnBytes = uint64_t{32} << 20;

uint64_t OwnBytes(const AddressMap& map) {
  return absl::StrContains(map.PathOf("libcuda.so"), "/emucuda/")
             ? kEmulatedOwnBytes
             : kDriversOwnBytes;
}

Check Reconcile(pid_t pid, const AddressMap& map,
                const abi::ScoreboardSnapshot& scoreboard) {
  return CheckMemory(scoreboard, DriversBytesOf(pid, NvmlOf(map), kNvmlTimeout),
                     OwnBytes(map));
}

std::vector<Check> Diagnose(pid_t pid) {
  const AddressMap map = ReadMap(pid);
  std::vector<Check> checks = {
      CheckPreload(map, ReadFile(absl::StrCat("/proc/", pid, "/environ")))};
  const auto scoreboard = FindScoreboard(pid);
  if (!scoreboard.ok()) {
    const bool none = absl::IsNotFound(scoreboard.status());
    checks.push_back(
        {none ? Check::Result::kSkipped : Check::Result::kFail, "scoreboard",
         none ? "no decisions yet: the process has made no large GPU allocation"
              : std::string(scoreboard.status().message()),
         none ? "" : "install the shim and fsctl from the same release"});
    // Nothing large went through the hooks: what is large bypassed them.
    if (none) checks.push_back(Reconcile(pid, map, {}));
    return checks;
  }
  checks.push_back(CheckLink(*scoreboard));
  checks.push_back(CheckGpus(*scoreboard));
  std::vector<Check> hooks = CheckHooks(*scoreboard, map);
  std::move(hooks.begin(), hooks.end(), std::back_inserter(checks));
  checks.push_back(CheckNamespaces(*scoreboard));
  checks.push_back(Reconcile(pid, map, *scoreboard));
  return checks;
}

}  // namespace

int RunProcessDoctor(const Globals& globals, const std::string& engine) {
  const absl::StatusOr<pid_t> pid = OneProcessOf(globals.gpu, engine);
  if (!pid.ok()) return Fail(ExitCodeOfProcess(pid.status()), pid.status());
  const absl::Status process = CheckProcess(*pid);
  if (!process.ok()) return Fail(kExitBadAnswer, process);
  return PrintReport(globals, Diagnose(*pid));
}

}  // namespace fineserve::fsctl

#include "tools/fsctl/doctor/machine_checks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/contract/abi/old_pool.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/abi/socket_path.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/processes/install_paths.h"

namespace fineserve::fsctl {
namespace {

using Severity = Finding::Severity;

// With a lower limit, an engine with its own files, sockets and shared
// libraries may run out of descriptors while it receives a batch of 253
// granules. Heuristic.
constexpr rlim_t kFewOpenFiles = 1024;
constexpr int kLeastDriverVersion = 12000;

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

Finding CheckPreload(const std::string& shim) {
  const ChildResult child = RunProgram(
      {{"/bin/true"}, {{"LD_PRELOAD", shim}}, "", ""}, absl::Seconds(10));
  if (child.succeeded() && !child.timed_out && child.output.empty()) {
    return {Severity::kOk, "shim", absl::StrCat(shim, " loads"), ""};
  }
  const std::string line = child.output.substr(0, child.output.find('\n'));
  return {Severity::kWrong, "shim",
          absl::StrCat(shim, " cannot be preloaded: ",
                       line.empty() ? "/bin/true crashed or hung"
                                    : abi::Printable(line.data(), line.size())),
          "install a libfineserve_shim.so built for this machine"};
}

Finding CheckDriverVersion(const std::string& library,
                           const ProbedDriver& driver) {
  const std::string found =
      absl::StrCat(library, ": CUDA ", VersionText(driver.version), ", ",
                   driver.devices.size(), " device(s)");
  if (driver.version < kLeastDriverVersion) {
    return {Severity::kWrong, "driver", found,
            "install an NVIDIA driver for CUDA 12.0 or later"};
  }
  if (driver.devices.empty()) {
    return {Severity::kWrong, "driver", found,
            "make a GPU visible (CUDA_VISIBLE_DEVICES, container runtime)"};
  }
  return {Severity::kOk, "driver", found, ""};
}

Finding CheckDevice(size_t ordinal, const ProbedDevice& device) {
  const std::string name = absl::StrCat("device ", ordinal);
  if (device.virtual_memory && device.posix_descriptors) {
    return {Severity::kOk, name,
            absl::StrCat(device.name,
                         ": virtual memory management, POSIX descriptors"),
            ""};
  }
  return {Severity::kWrong, name,
          absl::StrCat(device.name, ": no ",
                       device.virtual_memory ? "export as POSIX descriptors"
                                             : "virtual memory management"),
          "use a GPU and a Linux driver with CUDA virtual memory management"};
}

Finding NotChecked(const char* name, const absl::Status& why) {
  return {Severity::kSkipped, name,
          absl::StrCat("not checked: ", why.message()), ""};
}

// The GPUs for which `is_so` is true.
template <typename IsSo>
std::string Named(const std::vector<GpuMode>& gpus, IsSo is_so) {
  std::vector<std::string> named;
  for (const GpuMode& gpu : gpus) {
    if (is_so(gpu)) named.push_back(gpu.uuid);
  }
  return absl::StrJoin(named, ", ");
}

}  // namespace

Finding CheckRuntimeFolder(const std::string& folder) {
  struct stat st;
  if (lstat(folder.c_str(), &st) != 0) {
    return {Severity::kNote, "runtime folder",
            absl::StrCat(folder, ": ", strerror(errno)),
            "start fineserved, which creates it"};
  }
  const unsigned mode = st.st_mode & 07777;
  const std::string found = absl::StrFormat("%s: mode %04o, user %d", folder,
                                            mode, static_cast<int>(st.st_uid));
  if (!S_ISDIR(st.st_mode)) {
    return {Severity::kWrong, "runtime folder", folder + " is not a folder",
            "remove it and start fineserved"};
  }
  if (st.st_uid != geteuid() && st.st_uid != 0 &&
      !abi::IsServiceUser(folder.c_str(), st.st_uid)) {
    return {Severity::kWrong, "runtime folder", found,
            "remove it, or set FINESERVE_RUNTIME_DIR to another folder: it "
            "belongs to another user"};
  }
  if (st.st_uid != geteuid() && euidaccess(folder.c_str(), R_OK | X_OK) != 0) {
    return {Severity::kWrong, "runtime folder",
            found + ", and this user may not enter it",
            "run fsctl and engines as that user, or set FINESERVE_RUNTIME_DIR "
            "to a folder of a daemon of your own on another GPU"};
  }
  if (mode != 0700) {
    return {Severity::kWrong, "runtime folder", found, "chmod 700 " + folder};
  }
  return {Severity::kOk, "runtime folder", found, ""};
}

Finding CheckShim() {
  const std::string shim = FindShim();
  if (!shim.empty()) return CheckPreload(shim);
  return {
      Severity::kWrong, "shim",
      absl::StrCat("not found; looked for ", absl::StrJoin(ShimPlaces(), ", ")),
      "install all of FineServe, or set FINESERVE_SHIM to the shim's path"};
}

Findings CheckDriver(const std::string& library,
                     const absl::StatusOr<ProbedDriver>& driver) {
  if (!driver.ok()) {
    return {{Severity::kWrong, "driver",
             absl::StrCat(library, ": ", driver.status().message()),
             "install the NVIDIA driver, or check LD_LIBRARY_PATH"}};
  }
  Findings checks = {CheckDriverVersion(library, *driver)};
  for (size_t i = 0; i < driver->devices.size(); ++i) {
    checks.push_back(CheckDevice(i, driver->devices[i]));
  }
  return checks;
}

Finding CheckMig(const absl::StatusOr<std::vector<GpuMode>>& gpus) {
  if (!gpus.ok()) return NotChecked("MIG", gpus.status());
  std::vector<std::string> on;
  for (const GpuMode& gpu : *gpus) {
    if (!gpu.now && !gpu.next) continue;
    on.push_back(gpu.now == gpu.next
                     ? gpu.uuid
                     : absl::StrCat(gpu.uuid, gpu.now
                                                  ? " (until its next reset)"
                                                  : " (after its next reset)"));
  }
  if (on.empty()) {
    return {Severity::kOk, "MIG",
            absl::StrCat("off on ", gpus->size(), " GPU(s)"), ""};
  }
  return {Severity::kNote, "MIG",
          absl::StrCat("on for ", absl::StrJoin(on, ", "),
                       ": MIG instances are not supported"),
          "use another GPU, or switch MIG off: nvidia-smi -i UUID -mig 0"};
}

Finding CheckPersistence(const absl::StatusOr<std::vector<GpuMode>>& gpus) {
  if (!gpus.ok()) return NotChecked("persistence", gpus.status());
  const std::string off =
      Named(*gpus, [](const GpuMode& gpu) { return !gpu.persistent; });
  if (off.empty()) return {Severity::kOk, "persistence", "on", ""};
  return {Severity::kNote, "persistence",
          absl::StrCat("off for ", off,
                       ": a pool is lost if its daemon dies while no engine "
                       "runs"),
          "nvidia-smi -pm 1, or enable nvidia-persistenced"};
}

Finding CheckComputeMode(const absl::StatusOr<std::vector<GpuMode>>& gpus) {
  if (!gpus.ok()) return NotChecked("compute mode", gpus.status());
  const std::string other =
      Named(*gpus, [](const GpuMode& gpu) { return gpu.compute != 0; });
  if (other.empty()) return {Severity::kOk, "compute mode", "default", ""};
  return {Severity::kWrong, "compute mode",
          absl::StrCat("exclusive or prohibited on ", other,
                       ": engines cannot share it with the daemon"),
          "nvidia-smi -i UUID -c DEFAULT"};
}

Finding CheckPidfd() {
  const driver::Descriptor fd(
      static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (fd.valid()) return {Severity::kOk, "pidfd", "pidfd_open works", ""};
  return {Severity::kWrong, "pidfd",
          absl::StrCat("pidfd_open: ", strerror(errno)),
          "run Linux 5.3 or later, and allow pidfd_open in seccomp"};
}

Finding CheckMemfdSealing() {
  const driver::Descriptor fd(
      memfd_create("fineserve-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr int kSeals =
      F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (fd.valid() && fcntl(fd.get(), F_ADD_SEALS, kSeals) == 0) {
    return {Severity::kOk, "memfd", "memfd_create and sealing work", ""};
  }
  return {Severity::kWrong, "memfd",
          absl::StrCat("memfd_create or sealing failed: ", strerror(errno)),
          "run Linux 5.1 or later, and allow memfd_create in seccomp"};
}

Finding CheckOpenFiles() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found =
      absl::StrCat("limit ", limit.rlim_cur, " (hard ", limit.rlim_max, ")");
  if (limit.rlim_cur >= kFewOpenFiles) {
    return {Severity::kOk, "open files", found, ""};
  }
  return {Severity::kNote, "open files", found,
          absl::StrCat("raise the limit: ulimit -n ", kFewOpenFiles)};
}

Finding CheckMps() {
  const char* chosen = getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string folder = chosen != nullptr ? chosen : "/tmp/nvidia-mps";
  if (access(folder.c_str(), F_OK) != 0) {
    return {Severity::kOk, "MPS", "not running", ""};
  }
  return {Severity::kNote, "MPS",
          absl::StrCat(folder,
                       " exists, so MPS seems to run: a fatal fault of one "
                       "client ends all clients of the GPU"),
          "stop nvidia-cuda-mps-control if engines must not share faults"};
}

Finding CheckDaemonTrouble(const absl::Status& status) {
  const std::string message(status.message());
  if (absl::IsUnavailable(status)) {
    return {Severity::kWrong, "daemon", message,
            "start fineserved again: the daemon that left this socket is "
            "dead"};
  }
  if (absl::IsUnknown(status)) {
    return {
        Severity::kWrong, "daemon", message,
        "give fsctl what the message says it lacks; the daemon may be well"};
  }
  const char* fix = absl::IsFailedPrecondition(status)
                        ? "restart fineserved and its engines after an upgrade"
                        : "see the daemon's log";
  return {Severity::kWrong, "daemon", message, fix};
}

// SO_PEERCRED gives the daemon's pid as this process sees it; the Welcome
// message gives it as the daemon sees it. The two differ across pid namespaces.
Finding CheckPidNamespace(const abi::ObserverLink& link) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(link.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) !=
      0) {
    return {Severity::kSkipped, "pid namespace",
            absl::StrCat("not checked: SO_PEERCRED: ", strerror(errno)), ""};
  }
  if (static_cast<uint32_t>(peer.pid) == link.welcome.daemon_pid) {
    return {Severity::kOk, "pid namespace", "shared with the daemon", ""};
  }
  return {Severity::kWrong, "pid namespace",
          absl::StrCat("the daemon has pid ", link.welcome.daemon_pid,
                       " in its own pid namespace, but ", peer.pid, " in ours"),
          "run fsctl in the daemon's pid namespace (docker run --pid=host)"};
}

Finding CheckQuarantine(const abi::TableSnapshot& table) {
  if (table.counters.process_lists_useless == 0) {
    return {Severity::kOk, "quarantine", "the driver lists the GPU's processes",
            ""};
  }
  return {Severity::kWrong, "quarantine",
          "the driver does not list the GPU's processes by their pids here, so "
          "slabs of dead engines stay quarantined",
          "share the host's pid namespace (docker run --pid=host) and install "
          "NVML (libnvidia-ml.so.1); under MPS, one that can list its clients "
          "(fineserved's log has the reason)"};
}

Finding CheckFormerPools(const abi::TableSnapshot& table) {
  const std::string held =
      abi::Describe(abi::FindOldPools(table.gpu_uuid, table.epoch));
  if (held.empty()) {
    return {Severity::kOk, "former pools", "none is held", ""};
  }
  return {Severity::kWrong, "former pools", held,
          "fsctl up restarts its own engines, one after another; restart the "
          "others. A daemon that is a unit of systemd or runs "
          "under fineserved --supervise hands its pool to the next one"};
}

}  // namespace fineserve::fsctl

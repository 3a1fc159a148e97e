#include "tools/fsctl/doctor/machine_checks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/abi/socket_path.h"
#include "kernels/driver/descriptor.h"
#include "tools/fsctl/process/child.h"
#include "tools/fsctl/process/install_paths.h"

namespace fineserve::fsctl {
namespace {

using Result = Check::Result;

// With fewer, an engine with its own files, sockets and shared libraries may
// run out while it receives a batch of 253 granules. Heuristic.
constexpr rlim_t kFewOpenFiles = 1024;
constexpr int kLeastDriverVersion = 12000;

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

Check CheckPreload(const std::string& shim) {
  const ChildResult child = RunProgram(
      {{"/bin/true"}, {{"LD_PRELOAD", shim}}, "", ""}, absl::Seconds(10));
  if (child.succeeded() && !child.timed_out && child.output.empty()) {
    return {Result::kOk, "shim", absl::StrCat(shim, " loads"), ""};
  }
  const std::string line = child.output.substr(0, child.output.find('\n'));
  return {Result::kFail, "shim",
          absl::StrCat(shim, " cannot be preloaded: ",
                       line.empty() ? "/bin/true crashed or hung"
                                    : abi::Printable(line.data(), line.size())),
          "install a libfineserve_shim.so built for this machine"};
}

Check CheckDriverVersion(const std::string& library,
                         const ProbedDriver& driver) {
  const std::string found =
      absl::StrCat(library, ": CUDA ", VersionText(driver.version), ", ",
                   driver.devices.size(), " device(s)");
  if (driver.version < kLeastDriverVersion) {
    return {Result::kFail, "driver", found,
            "install an NVIDIA driver for CUDA 12.0 or later"};
  }
  if (driver.devices.empty()) {
    return {Result::kFail, "driver", found,
            "make a GPU visible (CUDA_VISIBLE_DEVICES, container runtime)"};
  }
  return {Result::kOk, "driver", found, ""};
}

Check CheckDevice(size_t ordinal, const ProbedDevice& device) {
  const std::string name = absl::StrCat("device ", ordinal);
  if (device.virtual_memory && device.posix_descriptors) {
    return {Result::kOk, name,
            absl::StrCat(device.name,
                         ": virtual memory management, POSIX descriptors"),
            ""};
  }
  return {Result::kFail, name,
          absl::StrCat(device.name, ": no ",
                       device.virtual_memory ? "export as POSIX descriptors"
                                             : "virtual memory management"),
          "use a GPU and a Linux driver with CUDA virtual memory management"};
}

Check NotChecked(const char* name, const absl::Status& why) {
  return {Result::kSkipped, name, absl::StrCat("not checked: ", why.message()),
          ""};
}

// Those of the GPUs that are so.
template <typename IsSo>
std::string Named(const std::vector<GpuMode>& gpus, IsSo is_so) {
  std::vector<std::string> named;
  for (const GpuMode& gpu : gpus) {
    if (is_so(gpu)) named.push_back(gpu.uuid);
  }
  return absl::StrJoin(named, ", ");
}

}  // namespace

Check CheckRuntimeFolder(const std::string& folder) {
  struct stat st;
  if (lstat(folder.c_str(), &st) != 0) {
    return {Result::kWarn, "runtime folder",
            absl::StrCat(folder, ": ", strerror(errno)),
            "start fineserved, which creates it"};
  }
  const unsigned mode = st.st_mode & 07777;
  const std::string found = absl::StrFormat("%s: mode %04o, user %d", folder,
                                            mode, static_cast<int>(st.st_uid));
  if (!S_ISDIR(st.st_mode)) {
    return {Result::kFail, "runtime folder", folder + " is not a folder",
            "remove it and start fineserved"};
  }
  if (st.st_uid != geteuid() && st.st_uid != 0 &&
      !abi::IsServiceUser(folder.c_str(), st.st_uid)) {
    return {Result::kFail, "runtime folder", found,
            "remove it, or set FINESERVE_RUNTIME_DIR to another folder: it "
            "belongs to another user"};
  }
  if (st.st_uid != geteuid() && euidaccess(folder.c_str(), R_OK | X_OK) != 0) {
    return {Result::kFail, "runtime folder",
            found + ", and this user may not enter it",
            "run fsctl and engines as that user, or set FINESERVE_RUNTIME_DIR "
            "to a folder of a daemon of your own on another GPU"};
  }
  if (mode != 0700) {
    return {Result::kFail, "runtime folder", found, "chmod 700 " + folder};
  }
  return {Result::kOk, "runtime folder", found, ""};
}

Check CheckShim() {
  const std::string shim = FindShim();
  if (!shim.empty()) return CheckPreload(shim);
  return {
      Result::kFail, "shim",
      absl::StrCat("not found; looked for ", absl::StrJoin(ShimPlaces(), ", ")),
      "install all of FineServe, or set FINESERVE_SHIM to the shim's path"};
}

std::vector<Check> CheckDriver(const std::string& library,
                               const absl::StatusOr<ProbedDriver>& driver) {
  if (!driver.ok()) {
    return {{Result::kFail, "driver",
             absl::StrCat(library, ": ", driver.status().message()),
             "install the NVIDIA driver, or check LD_LIBRARY_PATH"}};
  }
  std::vector<Check> checks = {CheckDriverVersion(library, *driver)};
  for (size_t i = 0; i < driver->devices.size(); ++i) {
    checks.push_back(CheckDevice(i, driver->devices[i]));
  }
  return checks;
}

Check CheckMig(const absl::StatusOr<std::vector<GpuMode>>& gpus) {
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
    return {Result::kOk, "MIG",
            absl::StrCat("off on ", gpus->size(), " GPU(s)"), ""};
  }
  return {Result::kWarn, "MIG",
          absl::StrCat("on for ", absl::StrJoin(on, ", "),
                       ": MIG instances are not supported"),
          "use another GPU, or switch MIG off: nvidia-smi -i UUID -mig 0"};
}

Check CheckPersistence(const absl::StatusOr<std::vector<GpuMode>>& gpus) {
  if (!gpus.ok()) return NotChecked("persistence", gpus.status());
  const std::string off =
      Named(*gpus, [](const GpuMode& gpu) { return !gpu.persistent; });
  if (off.empty()) return {Result::kOk, "persistence", "on", ""};
  return {Result::kWarn, "persistence",
          absl::StrCat("off for ", off,
                       ": a pool is lost if its daemon dies while no engine "
                       "runs"),
          "nvidia-smi -pm 1, or enable nvidia-persistenced"};
}

Check CheckComputeMode(const absl::StatusOr<std::vector<GpuMode>>& gpus) {
  if (!gpus.ok()) return NotChecked("compute mode", gpus.status());
  const std::string other =
      Named(*gpus, [](const GpuMode& gpu) { return gpu.compute != 0; });
  if (other.empty()) return {Result::kOk, "compute mode", "default", ""};
  return {Result::kFail, "compute mode",
          absl::StrCat("exclusive or prohibited on ", other,
                       ": engines cannot share it with the daemon"),
          "nvidia-smi -i UUID -c DEFAULT"};
}

Check CheckPidfd() {
  const driver::Descriptor fd(
      static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (fd.valid()) return {Result::kOk, "pidfd", "pidfd_open works", ""};
  return {Result::kFail, "pidfd", absl::StrCat("pidfd_open: ", strerror(errno)),
          "run Linux 5.3 or later, and allow pidfd_open in seccomp"};
}

Check CheckMemfdSealing() {
  const driver::Descriptor fd(
      memfd_create("fineserve-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr int kSeals =
      F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (fd.valid() && fcntl(fd.get(), F_ADD_SEALS, kSeals) == 0) {
    return {Result::kOk, "memfd", "memfd_create and sealing work", ""};
  }
  return {Result::kFail, "memfd",
          absl::StrCat("memfd_create or sealing failed: ", strerror(errno)),
          "run Linux 5.1 or later, and allow memfd_create in seccomp"};
}

Check CheckOpenFiles() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found =
      absl::StrCat("limit ", limit.rlim_cur, " (hard ", limit.rlim_max, ")");
  if (limit.rlim_cur >= kFewOpenFiles) {
    return {Result::kOk, "open files", found, ""};
  }
  return {Result::kWarn, "open files", found,
          absl::StrCat("raise the limit: ulimit -n ", kFewOpenFiles)};
}

Check CheckMps() {
  const char* chosen = getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string folder = chosen != nullptr ? chosen : "/tmp/nvidia-mps";
  if (access(folder.c_str(), F_OK) != 0) {
    return {Result::kOk, "MPS", "not running", ""};
  }
  return {Result::kWarn, "MPS",
          absl::StrCat(folder,
                       " exists, so MPS seems to run: a fatal fault of one "
                       "client ends all clients of the GPU"),
          "stop nvidia-cuda-mps-control if engines must not share faults"};
}

}  // namespace fineserve::fsctl

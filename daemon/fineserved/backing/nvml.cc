#include "daemon/fineserved/backing/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/socket_path.h"

namespace fineserve::backing {
namespace {

constexpr int kNvmlSuccess = 0;
constexpr int kNvmlNotSupported = 3;
constexpr int kNvmlInsufficientSize = 7;
// The kernel module lists at most this many processes, and does not report that
// it left some out.
constexpr unsigned int kMostListed = 950;

// Kinds of ECC errors.
constexpr int kUncorrected = 1;
constexpr int kSinceLoad = 0;

constexpr char kList[] = "nvmlDeviceGetComputeRunningProcesses_v3";
constexpr char kMpsList[] = "nvmlDeviceGetMPSComputeRunningProcesses_v3";

// The program's name, nvidia-cuda-mps-server, as the kernel shortens it.
constexpr char kMpsServerComm[] = "nvidia-cuda-mps";

bool IsMpsServer(pid_t pid) {
  std::string comm;
  std::ifstream file(absl::StrCat("/proc/", pid, "/comm"));
  return std::getline(file, comm) && comm == kMpsServerComm;
}

}  // namespace

// Both structs are from NVIDIA's nvml.h, version 3 of the calls.
struct Nvml::ProcessInfo {
  unsigned int pid;
  unsigned long long used_gpu_memory;
  unsigned int gpu_instance_id;
  unsigned int compute_instance_id;
};

struct ConfidentialState {
  unsigned int environment;
  unsigned int feature;
  unsigned int tools_mode;
};

struct Nvml::Api {
  int (*init)();
  int (*confidential_state)(ConfidentialState*);  // null if NVML is too old
  const char* (*error_string)(int);
  int (*handle_by_uuid)(const char*, void**);
  List running_processes;
  List mps_processes;  // null if NVML is too old
  int (*memory_errors)(void*, int, int, unsigned long long*);  // or null

  absl::Status Check(int result, absl::string_view what) const {
    if (result == kNvmlSuccess) return absl::OkStatus();
    const std::string text =
        absl::StrCat(what, ": ", error_string(result), " (", result, ")");
    return result == kNvmlNotSupported ? absl::UnimplementedError(text)
                                       : absl::NotFoundError(text);
  }
};

absl::StatusOr<Nvml> Nvml::Load(const std::string& library,
                                const uint8_t (&gpu_uuid)[16]) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("no NVML: ", dlerror()));
  }
  auto api = std::make_shared<Api>();
  const auto find = [&](const char* name, auto* out) {
    *out = reinterpret_cast<std::remove_pointer_t<decltype(out)>>(
        dlsym(handle, name));
    return *out != nullptr;
  };
  if (!find("nvmlInit_v2", &api->init) ||
      !find("nvmlErrorString", &api->error_string) ||
      !find("nvmlDeviceGetHandleByUUID", &api->handle_by_uuid) ||
      !find(kList, &api->running_processes)) {
    return absl::NotFoundError(
        absl::StrCat(library, " is too old: ", dlerror()));
  }
  find(kMpsList, &api->mps_processes);
  find("nvmlDeviceGetTotalEccErrors", &api->memory_errors);
  find("nvmlSystemGetConfComputeState", &api->confidential_state);
  absl::Status s = api->Check(api->init(), "nvmlInit");
  if (!s.ok()) return s;
  absl::StatusOr<void*> device = FindGpu(*api, gpu_uuid);
  if (!device.ok()) return device.status();
  return Nvml(std::move(api), *device);
}

absl::StatusOr<void*> Nvml::FindGpu(const Api& api,
                                    const uint8_t (&gpu_uuid)[16]) {
  char uuid[41];
  abi::FormatGpuUuid(gpu_uuid, uuid);
  void* device = nullptr;
  const absl::Status s =
      api.Check(api.handle_by_uuid(uuid, &device),
                absl::StrCat("nvmlDeviceGetHandleByUUID(", uuid, ")"));
  if (s.ok()) return device;
  // The driver gives an instance's own UUID, in the same bytes.
  const std::string instance = absl::StrCat("MIG", uuid + 3);
  if (api.handle_by_uuid(instance.c_str(), &device) != kNvmlSuccess) return s;
  return absl::FailedPreconditionError(absl::StrCat(
      instance,
      " is a MIG instance, which holds no pool yet; use a whole GPU, or switch "
      "MIG off: nvidia-smi -mig 0"));
}

bool Nvml::confidential() const {
  ConfidentialState state = {};
  return api_->confidential_state != nullptr &&
         api_->confidential_state(&state) == kNvmlSuccess && state.feature != 0;
}

absl::StatusOr<std::vector<pid_t>> Nvml::PidsOf(List list,
                                                const char* name) const {
  if (list == nullptr) {
    return absl::UnimplementedError(absl::StrCat("NVML has no ", name));
  }
  std::vector<ProcessInfo> processes(64);
  unsigned int count = 0;
  int result = kNvmlInsufficientSize;
  // Processes may start between two calls, so a few rounds may be needed.
  for (int round = 0; round < 4 && result == kNvmlInsufficientSize; ++round) {
    count = static_cast<unsigned int>(processes.size());
    result = list(device_, &count, processes.data());
    if (result == kNvmlInsufficientSize) processes.resize(2 * count + 64);
  }
  absl::Status s = api_->Check(result, name);
  if (!s.ok()) return s;
  if (count >= kMostListed) {
    return absl::ResourceExhaustedError(
        absl::StrCat(name, " lists ", count, " processes and may omit others"));
  }
  std::vector<pid_t> pids;
  for (unsigned int i = 0; i < count; ++i) {
    pids.push_back(static_cast<pid_t>(processes[i].pid));
  }
  return pids;
}

std::vector<pid_t> DeviceProcesses::All() const {
  std::vector<pid_t> pids = direct;
  pids.insert(pids.end(), mps_clients.begin(), mps_clients.end());
  return pids;
}

// If an MPS client starts and ends between the two lists, it is rightly in
// neither.
absl::StatusOr<DeviceProcesses> Nvml::Processes() const {
  absl::StatusOr<std::vector<pid_t>> direct =
      PidsOf(api_->running_processes, kList);
  if (!direct.ok()) return direct.status();
  DeviceProcesses all = {*std::move(direct), {}, {}};
  std::copy_if(all.direct.begin(), all.direct.end(),
               std::back_inserter(all.mps_servers), IsMpsServer);
  absl::StatusOr<std::vector<pid_t>> clients =
      PidsOf(api_->mps_processes, kMpsList);
  if (clients.ok()) {
    all.mps_clients = *std::move(clients);
    return all;
  }
  if (!absl::IsUnimplemented(clients.status())) return clients.status();
  if (all.mps_servers.empty()) return all;
  return absl::UnimplementedError(absl::StrCat(
      "the clients of the MPS server with pid ", all.mps_servers.front(),
      " are unknown: ", clients.status().message()));
}

uint64_t Nvml::MemoryErrors() const {
  unsigned long long count = 0;
  if (api_->memory_errors == nullptr ||
      api_->memory_errors(device_, kUncorrected, kSinceLoad, &count) !=
          kNvmlSuccess) {
    return 0;
  }
  return count;
}

}  // namespace fineserve::backing

#include "daemon/backing/nvml.h"

#include <dlfcn.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "daemon/abi/socket_path.h"

namespace fineserve::backing {
namespace {

constexpr int kNvmlSuccess = 0;
constexpr int kNvmlInsufficientSize = 7;

}  // namespace

struct Nvml::Api {
  // From NVIDIA's nvml.h, version 3 of the call.
  struct ProcessInfo {
    unsigned int pid;
    unsigned long long used_gpu_memory;
    unsigned int gpu_instance_id;
    unsigned int compute_instance_id;
  };

  int (*init)();
  const char* (*error_string)(int);
  int (*handle_by_uuid)(const char*, void**);
  int (*running_processes)(void*, unsigned int*, ProcessInfo*);

  absl::Status Check(int result, absl::string_view what) const {
    if (result == kNvmlSuccess) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat(what, ": ", error_string(result), " (", result, ")"));
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
      !find("nvmlDeviceGetComputeRunningProcesses_v3",
            &api->running_processes)) {
    return absl::NotFoundError(
        absl::StrCat(library, " is too old: ", dlerror()));
  }
  absl::Status s = api->Check(api->init(), "nvmlInit");
  if (!s.ok()) return s;
  char uuid[41];
  abi::FormatGpuUuid(gpu_uuid, uuid);
  void* device = nullptr;
  s = api->Check(api->handle_by_uuid(uuid, &device),
                 absl::StrCat("nvmlDeviceGetHandleByUUID(", uuid, ")"));
  if (!s.ok()) return s;
  return Nvml(std::move(api), device);
}

absl::StatusOr<std::vector<pid_t>> Nvml::ComputePids() const {
  std::vector<Api::ProcessInfo> processes(64);
  unsigned int count = 0;
  int result = kNvmlInsufficientSize;
  // Processes may start between two calls, so a few rounds may be needed.
  for (int round = 0; round < 4 && result == kNvmlInsufficientSize; ++round) {
    count = static_cast<unsigned int>(processes.size());
    result = api_->running_processes(device_, &count, processes.data());
    if (result == kNvmlInsufficientSize) processes.resize(2 * count + 64);
  }
  absl::Status s = api_->Check(result, "nvmlDeviceGetComputeRunningProcesses");
  if (!s.ok()) return s;
  std::vector<pid_t> pids;
  for (unsigned int i = 0; i < count; ++i) {
    pids.push_back(static_cast<pid_t>(processes[i].pid));
  }
  return pids;
}

}  // namespace fineserve::backing

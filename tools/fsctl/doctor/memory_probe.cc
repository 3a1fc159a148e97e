#include "tools/fsctl/doctor/memory_probe.h"

#include <dlfcn.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tools/fsctl/process/child.h"

namespace fineserve::fsctl {
namespace {

// From nvml.h (NVIDIA, "Device Queries"), version 3 of the call.
struct ProcessInfo {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance_id;
  unsigned int compute_instance_id;
};
constexpr int kSuccess = 0;
constexpr unsigned long long kNotAvailable = ~0ull;
// On a GPU with more processes, the rest are ignored.
constexpr unsigned kMostProcesses = 4096;

struct Nvml {
  int (*init)() = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_by_index)(unsigned, void**) = nullptr;
  int (*processes)(void*, unsigned*, ProcessInfo*) = nullptr;

  bool Load(const std::string& library) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return false;
    const auto find = [&](const char* name, auto* out) {
      *out = reinterpret_cast<std::remove_pointer_t<decltype(out)>>(
          dlsym(handle, name));
      return *out != nullptr;
    };
    return find("nvmlInit_v2", &init) &&
           find("nvmlDeviceGetCount_v2", &device_count) &&
           find("nvmlDeviceGetHandleByIndex_v2", &device_by_index) &&
           find("nvmlDeviceGetComputeRunningProcesses_v3", &processes);
  }
};

std::string Ask(pid_t pid, const std::string& library) {
  Nvml nvml;
  if (!nvml.Load(library) || nvml.init() != kSuccess) {
    return absl::StrCat("error NVML does not answer (", library, ")\n");
  }
  unsigned devices = 0;
  nvml.device_count(&devices);
  uint64_t bytes = 0;
  bool listed = false;
  std::vector<ProcessInfo> list(kMostProcesses);
  for (unsigned i = 0; i < devices; ++i) {
    void* device = nullptr;
    unsigned count = kMostProcesses;
    if (nvml.device_by_index(i, &device) != kSuccess ||
        nvml.processes(device, &count, list.data()) != kSuccess) {
      continue;
    }
    for (unsigned k = 0; k < count && k < kMostProcesses; ++k) {
      if (static_cast<pid_t>(list[k].pid) != pid) continue;
      if (list[k].used_bytes == kNotAvailable) {
        return "error the driver does not report how much memory a process "
               "uses\n";
      }
      listed = true;
      bytes += list[k].used_bytes;
    }
  }
  return listed ? absl::StrCat("bytes ", bytes, "\n") : "unlisted\n";
}

}  // namespace

absl::StatusOr<uint64_t> DriversBytesOf(pid_t pid, const std::string& library,
                                        absl::Duration timeout) {
  const ChildResult child =
      AskChild([&] { return Ask(pid, library); }, timeout);
  absl::string_view answer = absl::StripSuffix(child.output, "\n");
  uint64_t bytes = 0;
  if (absl::ConsumePrefix(&answer, "error ")) {
    return absl::UnavailableError(answer);
  }
  if (answer == "unlisted") {
    return absl::NotFoundError("the driver does not list the process");
  }
  if (!absl::ConsumePrefix(&answer, "bytes ") ||
      !absl::SimpleAtoi(answer, &bytes)) {
    return absl::UnavailableError("NVML crashed or did not answer in time");
  }
  return bytes;
}

}  // namespace fineserve::fsctl

#include "tools/fsctl/doctor/nvml_probe.h"

#include <dlfcn.h>

#include <functional>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/contract/abi/printable.h"
#include "tools/fsctl/processes/child.h"

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
  int (*uuid)(void*, char*, unsigned) = nullptr;
  // Null before driver 450.
  int (*mig_mode)(void*, unsigned*, unsigned*) = nullptr;
  int (*persistence)(void*, int*) = nullptr;
  int (*compute)(void*, int*) = nullptr;

  bool Load(const std::string& library) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return false;
    const auto find = [&](const char* name, auto* out) {
      *out = reinterpret_cast<std::remove_pointer_t<decltype(out)>>(
          dlsym(handle, name));
      return *out != nullptr;
    };
    find("nvmlDeviceGetMigMode", &mig_mode);
    find("nvmlDeviceGetPersistenceMode", &persistence);
    find("nvmlDeviceGetComputeMode", &compute);
    return find("nvmlInit_v2", &init) &&
           find("nvmlDeviceGetCount_v2", &device_count) &&
           find("nvmlDeviceGetHandleByIndex_v2", &device_by_index) &&
           find("nvmlDeviceGetUUID", &uuid) &&
           find("nvmlDeviceGetComputeRunningProcesses_v3", &processes);
  }

  // The devices for which NVML gives a handle.
  std::vector<void*> Devices() const {
    unsigned count = 0;
    device_count(&count);
    std::vector<void*> devices;
    for (unsigned i = 0; i < count; ++i) {
      void* device = nullptr;
      if (device_by_index(i, &device) == kSuccess) devices.push_back(device);
    }
    return devices;
  }
};

std::string BytesOf(pid_t pid, const Nvml& nvml) {
  uint64_t bytes = 0;
  bool listed = false;
  std::vector<ProcessInfo> list(kMostProcesses);
  for (void* const device : nvml.Devices()) {
    unsigned count = kMostProcesses;
    if (nvml.processes(device, &count, list.data()) != kSuccess) continue;
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

std::string GpuModesOf(const Nvml& nvml) {
  if (nvml.mig_mode == nullptr) return "error NVML is too old to know MIG\n";
  std::string answer;
  for (void* const device : nvml.Devices()) {
    char uuid[96] = "";
    unsigned now = 0, next = 0;
    nvml.uuid(device, uuid, sizeof(uuid));
    // NVML reports an error for a GPU that does not support MIG.
    if (nvml.mig_mode(device, &now, &next) != kSuccess) now = next = 0;
    int persistent = 1, compute = 0;
    if (nvml.persistence != nullptr) nvml.persistence(device, &persistent);
    if (nvml.compute != nullptr) nvml.compute(device, &compute);
    absl::StrAppend(&answer, "gpu ", now, " ", next, " ", persistent, " ",
                    compute, " ", abi::Printable(uuid), "\n");
  }
  return answer;
}

using Question = std::function<std::string(const Nvml&)>;

// Returns the answer of NVML in a child process; empty if the child crashed or
// took too long.
std::string Ask(const std::string& library, const Question& question,
                absl::Duration timeout) {
  const auto answer = [&] {
    Nvml nvml;
    return nvml.Load(library) && nvml.init() == kSuccess
               ? question(nvml)
               : absl::StrCat("error NVML does not answer (", library, ")\n");
  };
  const ChildResult child = AskChild(answer, timeout);
  return child.succeeded() && !child.timed_out ? child.output : "";
}

absl::Status NoAnswer() {
  return absl::UnavailableError("NVML crashed or did not answer in time");
}

}  // namespace

absl::StatusOr<uint64_t> DriversBytesOf(pid_t pid, const std::string& library,
                                        absl::Duration timeout) {
  const std::string text = Ask(
      library, [pid](const Nvml& nvml) { return BytesOf(pid, nvml); }, timeout);
  absl::string_view answer = absl::StripSuffix(text, "\n");
  uint64_t bytes = 0;
  if (absl::ConsumePrefix(&answer, "error ")) {
    return absl::UnavailableError(answer);
  }
  if (answer == "unlisted") {
    return absl::NotFoundError("the driver does not list the process");
  }
  if (!absl::ConsumePrefix(&answer, "bytes ") ||
      !absl::SimpleAtoi(answer, &bytes)) {
    return NoAnswer();
  }
  return bytes;
}

absl::StatusOr<std::vector<GpuMode>> GpuModes(const std::string& library,
                                              absl::Duration timeout) {
  return ParseGpuModes(Ask(library, GpuModesOf, timeout));
}

absl::StatusOr<std::vector<GpuMode>> ParseGpuModes(const std::string& answer) {
  std::vector<GpuMode> modes;
  for (absl::string_view line : absl::StrSplit(answer, '\n')) {
    if (absl::ConsumePrefix(&line, "error ")) {
      return absl::UnavailableError(line);
    }
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int compute = 0;
    if (words.size() != 6 || words[0] != "gpu" ||
        !absl::SimpleAtoi(words[4], &compute)) {
      continue;
    }
    modes.push_back(
        {words[5], words[1] != "0", words[2] != "0", words[3] != "0", compute});
  }
  if (modes.empty()) return NoAnswer();
  return modes;
}

}  // namespace fineserve::fsctl

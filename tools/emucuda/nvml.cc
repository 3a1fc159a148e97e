// libnvidia-ml.so.1: the few NVML functions that FineServe asks, answered from
// the state folder. Takes no client slot: whoever only looks is no client.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/emucuda/device_memory.h"
#include "tools/emucuda/mutex.h"
#include "tools/emucuda/settings.h"
#include "tools/emucuda/state_folder.h"

namespace fineserve::emucuda {
namespace {

enum nvmlReturn_t : unsigned {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_UNKNOWN = 999,
};

// usedGpuMemory when it is not known, as under a real driver in a container.
constexpr unsigned long long kNotAvailable = ~0ull;

struct nvmlMemory_t {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId;
  unsigned computeInstanceId;
};

struct NvmlDevice {
  std::string uuid;
  std::unique_ptr<DeviceMemory> memory;
};

// The opened machine. Devices never move or vanish once opened, so that a
// handle (NvmlDevice*) stays valid after nvmlShutdown too.
class Machine {
 public:
  static Machine& Get() {
    static Machine* const machine = new Machine;
    return *machine;
  }

  nvmlReturn_t Init();
  nvmlReturn_t Shutdown();
  bool initialised() const {
    const MutexLock lock(mutex_);
    return references_ > 0;
  }
  const std::vector<NvmlDevice>& devices() const { return devices_; }
  int driver_version() const { return settings_.driver_version; }

 private:
  bool OpenDevices();

  mutable Mutex mutex_;
  int references_ EMUCUDA_GUARDED_BY(mutex_) = 0;
  Settings settings_;                // const after the first Init
  std::vector<NvmlDevice> devices_;  // ditto
};

nvmlReturn_t Machine::Init() {
  const MutexLock lock(mutex_);
  if (devices_.empty() && !OpenDevices()) return NVML_ERROR_DRIVER_NOT_LOADED;
  ++references_;
  return NVML_SUCCESS;
}

nvmlReturn_t Machine::Shutdown() {
  const MutexLock lock(mutex_);
  if (references_ == 0) return NVML_ERROR_UNINITIALIZED;
  --references_;
  return NVML_SUCCESS;
}

bool Machine::OpenDevices() {
  std::string complaint;
  settings_ = ReadSettings(&complaint);
  const auto folder = StateFolder::Open(settings_.folder, &complaint);
  if (!complaint.empty()) {
    fprintf(stderr, "%s\n", complaint.c_str());
    return false;
  }
  std::vector<NvmlDevice> devices;
  for (int i = 0; i < settings_.devices; ++i) {
    auto memory = DeviceMemory::Open(*folder, i, settings_.memory_bytes);
    if (memory == nullptr) return false;
    devices.push_back({FormatUuid(folder->DeviceUuid(i)), std::move(memory)});
  }
  devices_ = std::move(devices);
  return true;
}

// Runs `body(machine)` if NVML is initialised and `argument` is given.
template <typename Body>
nvmlReturn_t Ask(const void* argument, Body body) {
  if (!Machine::Get().initialised()) return NVML_ERROR_UNINITIALIZED;
  if (argument == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return body(Machine::Get());
}

}  // namespace
}  // namespace fineserve::emucuda

#define EMUCUDA_NVML extern "C" __attribute__((visibility("default")))

using namespace fineserve::emucuda;  // NOLINT: C functions have no namespace

using nvmlDevice_t = const NvmlDevice*;

EMUCUDA_NVML nvmlReturn_t nvmlInit_v2() { return Machine::Get().Init(); }

EMUCUDA_NVML nvmlReturn_t nvmlShutdown() { return Machine::Get().Shutdown(); }

EMUCUDA_NVML const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    default:
      return "Unknown Error";
  }
}

EMUCUDA_NVML nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return Ask(version, [&](Machine& machine) {
    *version = machine.driver_version();
    return NVML_SUCCESS;
  });
}

EMUCUDA_NVML nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  return Ask(count, [&](Machine& machine) {
    *count = static_cast<unsigned>(machine.devices().size());
    return NVML_SUCCESS;
  });
}

EMUCUDA_NVML nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index,
                                                        nvmlDevice_t* device) {
  return Ask(device, [&](Machine& machine) {
    if (index >= machine.devices().size()) return NVML_ERROR_INVALID_ARGUMENT;
    *device = &machine.devices()[index];
    return NVML_SUCCESS;
  });
}

EMUCUDA_NVML nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid,
                                                    nvmlDevice_t* device) {
  return Ask(device, [&](Machine& machine) {
    if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (const NvmlDevice& candidate : machine.devices()) {
      if (candidate.uuid != uuid) continue;
      *device = &candidate;
      return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
  });
}

EMUCUDA_NVML nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid,
                                            unsigned capacity) {
  return Ask(device, [&](Machine&) {
    if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (capacity <= device->uuid.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(uuid, device->uuid.c_str(), device->uuid.size() + 1);
    return NVML_SUCCESS;
  });
}

EMUCUDA_NVML nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device,
                                                  nvmlMemory_t* memory) {
  return Ask(device, [&](Machine&) {
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    memory->total = device->memory->TotalBytes();
    memory->used = device->memory->UsedBytes();
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
  });
}

// `count`: room in `processes` on entry, processes on return; INSUFFICIENT_SIZE
// (with the count) if they do not fit.
EMUCUDA_NVML nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* processes) {
  return Ask(device, [&](Machine&) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const std::vector<uint32_t> pids = device->memory->Clients();
    const unsigned room = *count;
    *count = static_cast<unsigned>(pids.size());
    if (pids.size() > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (!pids.empty() && processes == nullptr) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (size_t i = 0; i < pids.size(); ++i) {
      processes[i] = {pids[i], kNotAvailable, ~0u, ~0u};
    }
    return NVML_SUCCESS;
  });
}

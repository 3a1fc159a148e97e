#include "tools/emucuda/nvml_machine.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "tools/emucuda/state_folder.h"

namespace fineserve::emucuda {

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

}  // namespace fineserve::emucuda

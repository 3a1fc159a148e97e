#include "tools/emucuda/nvml/nvml_machine.h"

#include <chrono>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tools/emucuda/machine/state_folder.h"

namespace fineserve::emucuda {

nvmlReturn_t Machine::Init() {
  const MutexLock lock(mutex_);
  if (devices_.count() == 0 && !OpenDevices())
    return NVML_ERROR_DRIVER_NOT_LOADED;
  ++references_;
  return NVML_SUCCESS;
}

nvmlReturn_t Machine::Shutdown() {
  const MutexLock lock(mutex_);
  if (references_ == 0) return NVML_ERROR_UNINITIALIZED;
  --references_;
  return NVML_SUCCESS;
}

void Machine::Delay() {
  if (settings_.nvml_latency_us == 0 && !driver_lock_.is_shared()) return;
  const DriverLock::Held lock(&driver_lock_);
  if (settings_.nvml_latency_us == 0) return;
  std::this_thread::sleep_for(
      std::chrono::microseconds(settings_.nvml_latency_us));
}

bool Machine::OpenDevices() {
  std::string complaint;
  settings_ = ReadSettings(&complaint);
  const auto folder = StateFolder::Open(settings_.folder, &complaint);
  std::optional<DeviceList> devices;
  if (complaint.empty()) {
    // All devices: NVML ignores CUDA_VISIBLE_DEVICES.
    std::vector<int> numbers(static_cast<size_t>(settings_.devices));
    std::iota(numbers.begin(), numbers.end(), 0);
    devices = DeviceList::Open(*folder, settings_, numbers, &complaint);
  }
  if (!devices) {
    fprintf(stderr, "%s\n", complaint.c_str());
    return false;
  }
  devices_ = *std::move(devices);
  const bool shares =
      settings_.machine_lock || settings_.teardown_us_per_gib > 0;
  return !shares || driver_lock_.Share(settings_.folder);
}

}  // namespace fineserve::emucuda

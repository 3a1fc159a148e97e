#include "tools/lab/device/api/driver_state.h"

#include <pthread.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "tools/lab/device/machine/visible_devices.h"
#include "tools/lab/device/stream/stream.h"

namespace fineserve::emucuda {
namespace {

void Complain(std::string line) {
  line += '\n';
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

DriverState& DriverState::Get() {
  static auto& state = *new DriverState;
  return state;
}

DriverState::DriverState() {
  settings_ = ReadSettings(&complaint_);
  SetStreamDelay(settings_.stream_delay_us);
  if (!injection_.SetFailures(settings_.failures)) {
    complaint_ = "emucuda: EMUCUDA_FAIL=" + settings_.failures +
                 ": expected function@call=error, …, such as cuMemCreate@3=2";
  }
  if (!injection_.SetLatencies(settings_.latencies)) {
    complaint_ = "emucuda: EMUCUDA_LATENCY_US=" + settings_.latencies +
                 ": expected function=microseconds, …";
  }
  if (!settings_.log_file.empty() && !log_.Open(settings_.log_file)) {
    complaint_ = "emucuda: EMUCUDA_LOG=" + settings_.log_file +
                 ": the file cannot be opened for appending";
  }
}

bool DriverState::NodesOpen() const {
  return access((settings_.folder + "/no-new-opens").c_str(), F_OK) != 0;
}

CUresult DriverState::ready() const {
  return state_.load(std::memory_order_acquire) == State::kReady
             ? CUDA_SUCCESS
             : CUDA_ERROR_NOT_INITIALIZED;
}

bool DriverState::forked() const {
  return state_.load(std::memory_order_relaxed) == State::kForked;
}

CUresult DriverState::Init() {
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  const MutexLock lock(init_mutex_);
  if (ready() == CUDA_SUCCESS) return CUDA_SUCCESS;
  if (!complaint_.empty()) {
    Complain(complaint_);
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::string complaint;
  if (const CUresult result = OpenDevices(&complaint)) {
    if (!complaint.empty()) Complain(complaint);
    return result;
  }
  pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  state_.store(State::kReady, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult DriverState::OpenDevices(std::string* complaint) {
  const std::optional<StateFolder> folder =
      StateFolder::Open(settings_.folder, complaint);
  if (!folder) return CUDA_ERROR_OPERATING_SYSTEM;
  std::optional<DeviceList> devices = DeviceList::Open(
      *folder, settings_, VisibleDevices(settings_, *folder), complaint);
  if (!devices) return CUDA_ERROR_OPERATING_SYSTEM;
  if (devices->count() == 0 || !NodesOpen()) return CUDA_ERROR_NO_DEVICE;
  DriverLock& lock = injection_.driver_lock();
  const bool shares =
      settings_.machine_lock || settings_.teardown_us_per_gib > 0;
  if (shares && !lock.Share(settings_.folder)) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  const Linger::Times times = {settings_.linger_ms,
                               settings_.teardown_us_per_gib};
  if (!linger_.Set(times, *devices, lock, complaint)) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  devices_ = *std::move(devices);
  return CUDA_SUCCESS;
}

// Makes a fork wait until no critical section is locked, because the child
// would share the lock and keep it for life. If a forked child forks, it has
// nothing to lock.
void DriverState::BeforeFork() {
  if (Get().forked()) return;
  for (const Device& device : Get().devices_) device.memory->LockForFork();
}

void DriverState::AfterForkInParent() {
  if (Get().forked()) return;
  for (const Device& device : Get().devices_) device.memory->UnlockAfterFork();
}

void DriverState::AfterForkInChild() {
  if (Get().forked()) return;
  for (const Device& device : Get().devices_) device.memory->UnlockAfterFork();
  Get().state_.store(State::kForked, std::memory_order_relaxed);
}

}  // namespace fineserve::emucuda

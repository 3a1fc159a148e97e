#include "tools/lab/device/cudart/current_device.h"

#include <mutex>
#include <vector>

#include "tools/lab/device/cudart/driver_calls.h"

namespace fineserve::cudart {
namespace {

thread_local int thread_device = 0;

// The primary contexts that we hold, by ordinal; null if not retained. Never
// destroyed, because host programs call us from their own destructors.
struct Primaries {
  std::mutex mutex;
  std::vector<CUcontext> contexts;  // guarded by mutex
};

Primaries& Held() {
  static Primaries* const primaries = new Primaries;
  return *primaries;
}

cudaError_t Retain(Primaries& held, int ordinal) {
  const size_t index = static_cast<size_t>(ordinal);
  if (index >= held.contexts.size()) held.contexts.resize(index + 1);
  if (held.contexts[index] != nullptr) return cudaSuccess;
  return Ask<&DriverCalls::cuDevicePrimaryCtxRetain>(&held.contexts[index],
                                                     ordinal);
}

cudaError_t Activate(int ordinal) {
  CUcontext context = nullptr;
  const cudaError_t error = PrimaryContext(ordinal, &context);
  if (error != cudaSuccess) return error;
  return Ask<&DriverCalls::cuCtxSetCurrent>(context);
}

}  // namespace

cudaError_t CheckDevice(int ordinal) {
  int count = 0;
  if (const cudaError_t error = LoadDriver()) return error;
  if (const cudaError_t error = Ask<&DriverCalls::cuDeviceGetCount>(&count))
    return error;
  return ordinal >= 0 && ordinal < count ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t PrimaryContext(int ordinal, driver::CUcontext* context) {
  if (const cudaError_t error = CheckDevice(ordinal)) return error;
  Primaries& held = Held();
  const std::lock_guard lock(held.mutex);
  if (const cudaError_t error = Retain(held, ordinal)) return error;
  *context = held.contexts[static_cast<size_t>(ordinal)];
  return cudaSuccess;
}

cudaError_t EnterContext() {
  if (const cudaError_t error = LoadDriver()) return error;
  CUcontext current = nullptr;
  if (const cudaError_t error = Ask<&DriverCalls::cuCtxGetCurrent>(&current))
    return error;
  return current != nullptr ? cudaSuccess : Activate(thread_device);
}

cudaError_t CurrentDevice(int* ordinal) {
  if (const cudaError_t error = LoadDriver()) return error;
  CUcontext current = nullptr;
  if (const cudaError_t error = Ask<&DriverCalls::cuCtxGetCurrent>(&current))
    return error;
  if (current != nullptr) return Ask<&DriverCalls::cuCtxGetDevice>(ordinal);
  *ordinal = thread_device;
  return cudaSuccess;
}

cudaError_t SelectDevice(int ordinal) {
  const cudaError_t error = Activate(ordinal);
  if (error == cudaSuccess) thread_device = ordinal;
  return error;
}

cudaError_t ResetDevice() {
  int ordinal = 0;
  if (const cudaError_t error = CurrentDevice(&ordinal)) return error;
  Primaries& held = Held();
  {
    const std::lock_guard lock(held.mutex);
    const size_t index = static_cast<size_t>(ordinal);
    if (index < held.contexts.size()) held.contexts[index] = nullptr;
  }
  if (const cudaError_t error =
          Ask<&DriverCalls::cuDevicePrimaryCtxReset>(ordinal))
    return error;
  return Ask<&DriverCalls::cuCtxSetCurrent>(CUcontext{nullptr});
}

void ReleaseDevices() {
  Primaries& held = Held();
  const std::lock_guard lock(held.mutex);
  for (size_t i = 0; i < held.contexts.size(); ++i) {
    if (held.contexts[i] == nullptr) continue;
    Ask<&DriverCalls::cuDevicePrimaryCtxRelease>(static_cast<CUdevice>(i));
    held.contexts[i] = nullptr;
  }
}

}  // namespace fineserve::cudart

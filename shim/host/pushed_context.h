#ifndef SHIM_HOST_PUSHED_CONTEXT_H_
#define SHIM_HOST_PUSHED_CONTEXT_H_

#include "kernels/driver/entry_points.h"
#include "shim/host/original.h"

namespace fineserve::shim {

// A reference to a device's primary context, if that is active. It never
// activates one.
class PrimaryContext {
 public:
  PrimaryContext(const driver::EntryPoints& entry, driver::CUdevice device)
      : entry_(entry), device_(device) {
    if (IsActive(entry, device) &&
        entry.cuDevicePrimaryCtxRetain(&context_, device) !=
            driver::CUDA_SUCCESS) {
      context_ = nullptr;
    }
  }
  ~PrimaryContext() {
    if (context_ != nullptr) entry_.cuDevicePrimaryCtxRelease_v2(device_);
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  static bool IsActive(const driver::EntryPoints& entry,
                       driver::CUdevice device) {
    unsigned flags = 0;
    int active = 0;
    const driver::CUresult result =
        CallOptional(entry.cuDevicePrimaryCtxGetState, device, &flags, &active);
    return result == driver::CUDA_SUCCESS && active != 0;
  }

  driver::CUcontext get() const { return context_; }  // null: none

 private:
  const driver::EntryPoints& entry_;
  const driver::CUdevice device_;
  driver::CUcontext context_ = nullptr;
};

// True if a context could not be made current because it has ended.
inline bool HasEnded(driver::CUresult pushed) {
  return pushed == driver::CUDA_ERROR_CONTEXT_IS_DESTROYED ||
         pushed == driver::CUDA_ERROR_INVALID_CONTEXT;
}

// While this object lives, `context` is current in this thread, if it could be
// made current; null leaves the current context as it is.
class PushedContext {
 public:
  PushedContext(const driver::EntryPoints& entry, driver::CUcontext context)
      : entry_(entry), pushes_(context != nullptr) {
    if (pushes_) result_ = entry.cuCtxPushCurrent_v2(context);
  }
  ~PushedContext() {
    driver::CUcontext popped = nullptr;
    if (pushes_ && result_ == driver::CUDA_SUCCESS) {
      entry_.cuCtxPopCurrent_v2(&popped);
    }
  }
  PushedContext(const PushedContext&) = delete;
  PushedContext& operator=(const PushedContext&) = delete;

  // The driver's answer.
  driver::CUresult result() const { return result_; }

 private:
  const driver::EntryPoints& entry_;
  const bool pushes_;
  driver::CUresult result_ = driver::CUDA_SUCCESS;
};

}  // namespace fineserve::shim

#endif  // SHIM_HOST_PUSHED_CONTEXT_H_

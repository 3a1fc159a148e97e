#ifndef SHIM_HOST_PUSHED_CONTEXT_H_
#define SHIM_HOST_PUSHED_CONTEXT_H_

#include "kernels/driver/entry_points.h"

namespace fineserve::shim {

// While this object lives, `context` is current in this thread, if it could be
// made so; null leaves the current one as it is.
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

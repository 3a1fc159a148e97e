#ifndef SHIM_HOST_RELAXED_CAPTURE_H_
#define SHIM_HOST_RELAXED_CAPTURE_H_

#include "kernels/driver/entry_points.h"
#include "shim/host/original.h"

namespace fineserve::shim {

// In CUDA's default capture mode, calls that a capture would not see, such as a
// query of an event or (as far as is known) a change of mappings, invalidate a
// capture that the program has under way in any thread. Our own calls concern
// no capture, so while this object lives, this thread makes them in the relaxed
// mode, which allows all of them.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const driver::EntryPoints& entry) : entry_(entry) {
    changed_ = Exchange() == driver::CUDA_SUCCESS;
  }
  ~RelaxedCapture() {
    if (changed_) Exchange();
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  // Swaps the thread's mode with `mode_`; a second call restores it.
  driver::CUresult Exchange() {
    return CallOptional(entry_.cuThreadExchangeStreamCaptureMode, &mode_);
  }

  const driver::EntryPoints& entry_;
  driver::CUstreamCaptureMode mode_ = driver::CU_STREAM_CAPTURE_MODE_RELAXED;
  bool changed_;
};

}  // namespace fineserve::shim

#endif  // SHIM_HOST_RELAXED_CAPTURE_H_

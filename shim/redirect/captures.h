#ifndef SHIM_REDIRECT_CAPTURES_H_
#define SHIM_REDIRECT_CAPTURES_H_

#include "kernels/driver/entry_points.h"
#include "shim/host/original.h"

namespace fineserve::shim {

// True if `stream` is being captured into a graph. A driver that lacks the call
// has no captures.
inline bool IsCapturing(const driver::EntryPoints& entry,
                        driver::CUstream stream) {
  driver::CUstreamCaptureStatus status = driver::CU_STREAM_CAPTURE_STATUS_NONE;
  CallOptional(entry.cuStreamIsCapturing, stream, &status);
  return status != driver::CU_STREAM_CAPTURE_STATUS_NONE;
}

// In CUDA's default capture mode, a query of an event invalidates a capture
// that the program has under way in any thread. Our queries concern no capture,
// so while this object lives, this thread makes them in the relaxed mode, which
// forbids nothing.
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

#endif  // SHIM_REDIRECT_CAPTURES_H_

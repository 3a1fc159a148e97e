#ifndef SHIM_REDIRECT_CAPTURES_H_
#define SHIM_REDIRECT_CAPTURES_H_

#include "kernels/driver/entry_points.h"

namespace fineserve::shim {

// True if `stream` is being captured into a graph. A driver that lacks the call
// has no captures.
bool IsCapturing(const driver::EntryPoints& entry, driver::CUstream stream);

// In CUDA's default capture mode, a query of an event ends the capture that the
// program has under way, in this thread or in another one. Our queries concern
// no capture: while this object lives, this thread makes them in the relaxed
// mode, which forbids nothing.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const driver::EntryPoints& entry);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  driver::CUresult Exchange();

  const driver::EntryPoints& entry_;
  driver::CUstreamCaptureMode mode_ = driver::CU_STREAM_CAPTURE_MODE_RELAXED;
  bool changed_;
};

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_CAPTURES_H_

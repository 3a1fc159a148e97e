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

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_CAPTURES_H_

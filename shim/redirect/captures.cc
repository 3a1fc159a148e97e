#include "shim/redirect/captures.h"

#include "shim/host/original.h"

namespace fineserve::shim {

using driver::CUDA_SUCCESS;

bool IsCapturing(const driver::EntryPoints& entry, driver::CUstream stream) {
  driver::CUstreamCaptureStatus status = driver::CU_STREAM_CAPTURE_STATUS_NONE;
  CallOptional(entry.cuStreamIsCapturing, stream, &status);
  return status != driver::CU_STREAM_CAPTURE_STATUS_NONE;
}

RelaxedCapture::RelaxedCapture(const driver::EntryPoints& entry)
    : entry_(entry) {
  changed_ = Exchange() == CUDA_SUCCESS;
}

RelaxedCapture::~RelaxedCapture() {
  if (changed_) Exchange();
}

// Swaps the thread's mode with `mode_`, so that a second call restores it.
driver::CUresult RelaxedCapture::Exchange() {
  return CallOptional(entry_.cuThreadExchangeStreamCaptureMode, &mode_);
}

}  // namespace fineserve::shim

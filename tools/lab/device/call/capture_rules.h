#ifndef TOOLS_LAB_DEVICE_CALL_CAPTURE_RULES_H_
#define TOOLS_LAB_DEVICE_CALL_CAPTURE_RULES_H_

#include "tools/lab/device/call/entry.h"

namespace fineserve::emucuda {

// True if CUDA counts a call among the "potentially unsafe" ones: calls that a
// capture would not see, which a thread's capture mode may therefore forbid
// while a capture is in progress (cuThreadExchangeStreamCaptureMode in cuda.h).
// Calls that conflict with a capture in every mode, such as synchronising its
// stream, its context or the legacy stream, are checked in the calls
// themselves. If `strict`, virtual memory management calls count as well; the
// documentation says nothing about them (EMUCUDA_CAPTURE).
bool IsUnsafeDuringCapture(Entry entry, bool strict);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_CALL_CAPTURE_RULES_H_

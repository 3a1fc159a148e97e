#include "shim/stack.h"

#include <unwind.h>

namespace fineserve::shim {
namespace {

// Collects instruction pointers from `caller` on.
struct Capture {
  uint64_t caller;
  uint64_t* frames;
  uint16_t capacity;
  uint16_t count = 0;

  static _Unwind_Reason_Code Visit(_Unwind_Context* context, void* self) {
    auto* c = static_cast<Capture*>(self);
    const uint64_t ip = _Unwind_GetIP(context);
    if (c->count == 0 && ip != c->caller) return _URC_NO_REASON;
    if (c->count == c->capacity || ip == 0) return _URC_END_OF_STACK;
    c->frames[c->count++] = ip;
    return _URC_NO_REASON;
  }
};

}  // namespace

// The unwinder is the static libgcc's: Debian's libunwind.a is not
// position-independent, so its faster unw_backtrace cannot be linked in.
uint16_t CaptureStack(const void* caller, uint64_t* frames, uint16_t capacity) {
  Capture capture{reinterpret_cast<uint64_t>(caller), frames, capacity};
  _Unwind_Backtrace(&Capture::Visit, &capture);
  if (capture.count > 0) return capture.count;
  // Unwinding failed before it left the shim. The caller is known anyway.
  frames[0] = capture.caller;
  return 1;
}

}  // namespace fineserve::shim

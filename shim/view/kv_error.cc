#include "shim/view/kv_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "shim/fineserve_kv.h"

namespace fineserve::shim {
namespace {

constinit thread_local char t_text[640] = "";

}  // namespace

int KvError(int code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(t_text, sizeof(t_text), format, args);
  va_end(args);
  return code;
}

int NegativeTimeout(int timeout_ms) {
  return KvError(FS_INVALID, "timeout_ms is %d, which is negative", timeout_ms);
}

const char* KvErrorText() { return t_text; }

}  // namespace fineserve::shim

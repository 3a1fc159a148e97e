#ifndef SHIM_VIEW_KV_ERROR_H_
#define SHIM_VIEW_KV_ERROR_H_

namespace fineserve::shim {

// Sets this thread's text for fs_kv_error() and returns `code`
// (fineserve_kv.h). printf-like; a text that is too long is cut.
int KvError(int code, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// The error of a timeout below zero.
int NegativeTimeout(int timeout_ms);

// Returns the last text; "" if there was no error.
const char* KvErrorText();

}  // namespace fineserve::shim

#endif  // SHIM_VIEW_KV_ERROR_H_

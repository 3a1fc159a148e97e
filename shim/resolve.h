#ifndef SHIM_RESOLVE_H_
#define SHIM_RESOLVE_H_

// dlsym and dlvsym, answered. The exported functions are assembly stubs
// (dlsym_stub.S) that ask a filter and otherwise jump to the C library's own,
// so that glibc sees the original caller: RTLD_NEXT and RTLD_DEFAULT depend on
// it. dlvsym matters because it is how other tools that define dlsym find the
// next one: they would find the C library's and lead a program past us.
//
// Everything here works before any constructor has run and allocates nothing.

#include <cstdint>

#include "shim/hook_table.h"

namespace fineserve::shim {

using DlsymFunction = void* (*)(void* handle, const char* name);
using DlvsymFunction = void* (*)(void* handle, const char* name,
                                 const char* version);
using DlopenFunction = void* (*)(const char* name, int flags);

inline constexpr char kDriverSoname[] = "libcuda.so.1";

// The C library's own functions, whatever else was preloaded. Null only if
// this process has no glibc.
DlsymFunction RealDlsym();
DlvsymFunction RealDlvsym();
DlopenFunction RealDlopen();

// True once a libcuda.so.1 is loaded, in whatever scope.
bool DriverLoaded();

// Our exported function for a hook; null for kNone. Defined by hooks.cc.
void* HookAddress(Hook hook);

// What a stub does next. Returned in rax and rdx.
struct DlsymAnswer {
  void* value;        // to be returned, if
  uint64_t answered;  // is not 0; else jump to the C library's own
};

extern "C" {
// `caller` is the return address of the call. The stubs share one layout of
// arguments, so dlsym's filter gets a third one that means nothing.
DlsymAnswer fineserve_filter_dlsym(void* handle, const char* name,
                                   const char* unused, const void* caller);
DlsymAnswer fineserve_filter_dlvsym(void* handle, const char* name,
                                    const char* version, const void* caller);
// The stubs' jump targets; set by the filters, which run first.
extern DlsymFunction fineserve_real_dlsym;
extern DlvsymFunction fineserve_real_dlvsym;
}

}  // namespace fineserve::shim

#endif  // SHIM_RESOLVE_H_

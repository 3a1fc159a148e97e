#ifndef SHIM_HOOKS_LOADER_FILTERS_H_
#define SHIM_HOOKS_LOADER_FILTERS_H_

// These filters answer dlsym and dlvsym, and watch dlopen and dlmopen. The
// exported functions are assembly stubs (loader_stubs.S) that call a filter and
// then, unless it has an answer, jump to the C library's own function, so that
// glibc sees the original caller: RTLD_NEXT, RTLD_DEFAULT and RUNPATH depend on
// it. dlvsym matters because other tools that define dlsym find the next dlsym
// with it: they would find the C library's, and the program would bypass us.
//
// A library opened with RTLD_DEEPBIND sees its own dependencies before us,
// among them the driver and the C library's dlsym. So the filter clears that
// flag (it counts this and warns once; FINESERVE_KEEP_DEEPBIND=1 keeps the
// flag). A namespace that dlmopen creates has no preloads at all; we can only
// count it.
//
// Everything here works before any constructor has run and allocates nothing.

#include <cstdint>

#include "shim/host/libc_loader.h"

namespace fineserve::shim {

// A stub's next step: it returns `value` if `answered` is not 0; otherwise it
// jumps to the C library's own function. Passed in rax and rdx.
struct DlsymAnswer {
  void* value;
  uint64_t answered;
};

extern "C" {
// `caller` is the return address of the call. All stubs pass their arguments in
// the same way, so the filter of dlsym gets a meaningless third argument.
DlsymAnswer fineserve_filter_dlsym(void* handle, const char* name,
                                   const char* unused, const void* caller);
DlsymAnswer fineserve_filter_dlvsym(void* handle, const char* name,
                                    const char* version, const void* caller);
// These return the flags for the real function.
int fineserve_filter_dlopen(const char* file, int flags);
int fineserve_filter_dlmopen(long space, const char* file, int flags);
// The stubs' jump targets, set by the filters, which run first.
extern DlsymFunction fineserve_real_dlsym;
extern DlvsymFunction fineserve_real_dlvsym;
extern DlopenFunction fineserve_real_dlopen;
extern DlmopenFunction fineserve_real_dlmopen;
}

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_LOADER_FILTERS_H_

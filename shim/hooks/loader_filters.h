#ifndef SHIM_HOOKS_LOADER_FILTERS_H_
#define SHIM_HOOKS_LOADER_FILTERS_H_

// dlsym and dlvsym, answered; dlopen and dlmopen, watched. The exported
// functions are assembly stubs (loader_stubs.S) that ask a filter and otherwise
// jump to the C library's own, so that glibc sees the original caller:
// RTLD_NEXT, RTLD_DEFAULT and RUNPATH depend on it. dlvsym matters because it
// is how other tools that define dlsym find the next one: they would find the
// C library's and lead a program past us.
//
// A library opened with RTLD_DEEPBIND sees its own dependencies before us, the
// driver and the C library's dlsym among them. So dlopen loses that flag
// (counted, one warning; FINESERVE_KEEP_DEEPBIND=1 keeps it). A namespace of
// its own (dlmopen) has no preloads at all: that can be counted only.
//
// Everything here works before any constructor has run and allocates nothing.

#include <cstdint>

#include "shim/host/libc_loader.h"

namespace fineserve::shim {

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

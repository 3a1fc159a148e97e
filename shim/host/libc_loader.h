#ifndef SHIM_HOST_LIBC_LOADER_H_
#define SHIM_HOST_LIBC_LOADER_H_

namespace fineserve::shim {

using DlsymFunction = void* (*)(void* handle, const char* name);
using DlvsymFunction = void* (*)(void* handle, const char* name,
                                 const char* version);
using DlopenFunction = void* (*)(const char* file, int flags);
using DlmopenFunction = void* (*)(long space, const char* file, int flags);

// The C library's own functions, regardless of other preloads. Null only if
// this process has no glibc. Safe on any thread, before any constructor has
// run.
void* LibcFunction(const char* name);
DlsymFunction RealDlsym();
DlvsymFunction RealDlvsym();
DlopenFunction RealDlopen();
DlmopenFunction RealDlmopen();

}  // namespace fineserve::shim

#endif  // SHIM_HOST_LIBC_LOADER_H_

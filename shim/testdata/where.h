#ifndef SHIM_TESTDATA_WHERE_H_
#define SHIM_TESTDATA_WHERE_H_

// Tells programs and libraries under test which module defines a function.

#include <dlfcn.h>
#include <string.h>

// "null", "shim", "driver", "libc", or "other".
inline const char* WhereIs(const void* function) {
  if (function == nullptr) return "null";
  Dl_info where;
  if (dladdr(function, &where) == 0) return "other";
  if (strstr(where.dli_fname, "libfineserve_shim.so")) return "shim";
  if (strstr(where.dli_fname, "libcuda.so.1")) return "driver";
  return strstr(where.dli_fname, "libc.so.6") ? "libc" : "other";
}

#endif  // SHIM_TESTDATA_WHERE_H_

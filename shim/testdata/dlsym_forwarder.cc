// Interposes dlsym as other tools do: a C function that finds the next dlsym
// with dlvsym, which then sees this library as its caller.

#include <dlfcn.h>

#include "shim/testdata/glibc_version.h"

extern "C" void* dlsym(void* handle, const char* name) noexcept {
  using Dlsym = void* (*)(void*, const char*);
  static Dlsym next = nullptr;
  if (next == nullptr) {
    next = reinterpret_cast<Dlsym>(
        dlvsym(RTLD_NEXT, "dlsym", FINESERVE_FIRST_GLIBC));
  }
  return next(handle, name);
}

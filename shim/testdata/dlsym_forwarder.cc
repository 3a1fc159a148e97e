// Interposes dlsym as other tools do: in C, found by dlvsym, so that the next
// one sees this library as the caller.

#include <dlfcn.h>

extern "C" void* dlsym(void* handle, const char* name) noexcept {
  using Dlsym = void* (*)(void*, const char*);
  static Dlsym next = nullptr;
  if (next == nullptr) {
    next = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  }
  return next(handle, name);
}

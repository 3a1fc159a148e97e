// Interposes malloc as profilers do: RTLD_NEXT finds the real one.

#include <dlfcn.h>
#include <stddef.h>

namespace {

using Malloc = void* (*)(size_t);
long g_calls = 0;

}  // namespace

extern "C" long interposed_mallocs() { return g_calls; }

extern "C" void* malloc(size_t bytes) {
  static Malloc real = nullptr;
  if (real == nullptr)
    real = reinterpret_cast<Malloc>(dlsym(RTLD_NEXT, "malloc"));
  ++g_calls;
  return real(bytes);
}

// A library to preload before or after the shim. It calls dlsym in its
// constructor, which may run before the shim's, and later with RTLD_NEXT.

#include <dlfcn.h>
#include <string.h>

#include "shim/testdata/glibc_version.h"
#include "shim/testdata/where.h"

namespace {

constexpr const char* kEarlyNames[] = {"malloc", "cuMemAlloc_v2", "dlsym"};
const char* g_early[3];

__attribute__((constructor)) void AskEarly() {
  for (int i = 0; i < 3; ++i) {
    g_early[i] = WhereIs(dlsym(RTLD_DEFAULT, kEarlyNames[i]));
  }
}

}  // namespace

extern "C" const char* probe_early(const char* name) {
  for (int i = 0; i < 3; ++i) {
    if (strcmp(kEarlyNames[i], name) == 0) return g_early[i];
  }
  return "unknown";
}

// This must not be a tail call: dlsym must see this library as its caller.
extern "C" void* probe_next(const char* name) {
  void* volatile found = dlsym(RTLD_NEXT, name);
  return found;
}

// Finds the next dlsym as a library that defines dlsym itself does.
extern "C" void* probe_next_dlsym() {
  void* volatile found = dlvsym(RTLD_NEXT, "dlsym", FINESERVE_FIRST_GLIBC);
  return found;
}

// A library with the driver among its own dependencies. Opened with
// RTLD_DEEPBIND, it would see the driver's and the C library's functions before
// any preload's.

#include <dlfcn.h>

#include "kernels/driver/prototypes.h"

extern "C" void* deepbind_alloc() {
  return reinterpret_cast<void*>(&fineserve::driver::cuMemAlloc_v2);
}

extern "C" void* deepbind_dlsym() { return reinterpret_cast<void*>(&dlsym); }

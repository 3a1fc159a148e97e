// A library that depends on the driver. If it were opened with RTLD_DEEPBIND,
// it would see the driver's and the C library's functions before those of any
// preload.

#include <dlfcn.h>

#include "kernels/driver/prototypes.h"

extern "C" void* deepbind_alloc() {
  return reinterpret_cast<void*>(&fineserve::driver::cuMemAlloc_v2);
}

extern "C" void* deepbind_dlsym() { return reinterpret_cast<void*>(&dlsym); }

#ifndef KERNELS_DRIVER_PROTOTYPES_H_
#define KERNELS_DRIVER_PROTOTYPES_H_

// C declarations of the driver's exported symbols, for a program that links
// against libcuda.so.1 (our test engines) or defines it (the emulated driver,
// the shim). They replace cuda.h.

#include "kernels/driver/entry_points.h"

namespace fineserve::driver {
extern "C" {
#define FINESERVE_PROTOTYPE(symbol, name, since, need, args) \
  CUresult symbol args;
FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_PROTOTYPE)
#undef FINESERVE_PROTOTYPE
#define FINESERVE_PROTOTYPE(plain, variant, name, since, args, call) \
  CUresult plain##_##variant args;
FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(FINESERVE_PROTOTYPE)
#undef FINESERVE_PROTOTYPE
}
}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_PROTOTYPES_H_

// Defines every driver symbol, so that stock_engine links as it would against a
// real libcuda.so.1. Never loaded at run time.

#include "kernels/driver/prototypes.h"

namespace fineserve::driver {
extern "C" {
#define FINESERVE_STUB(symbol, name, since, need, args) \
  CUresult symbol args { return CUDA_ERROR_NOT_INITIALIZED; }
FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_STUB)
#undef FINESERVE_STUB
}
}  // namespace fineserve::driver

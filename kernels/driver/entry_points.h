#ifndef KERNELS_DRIVER_ENTRY_POINTS_H_
#define KERNELS_DRIVER_ENTRY_POINTS_H_

// The one list of CUDA driver entry points: what FineServe calls, what the
// emulated driver provides, and what a program may link against.
//
//   X(symbol, name, since, need, args)
//     symbol  the exported symbol, and the member in driver::EntryPoints
//     name    what a program asks cuGetProcAddress for
//     since   the CUDA version (1000 × major + 10 × minor) that introduced
//             this ABI of the name; asking with a version in
//             [since, next row's since) of the same name must yield `symbol`
//             (checked against cudaTypedefs.h where a toolkit is present)
//     need    kRequired: FineServe cannot work with a driver that lacks it;
//             kOptional: FineServe works without it, other programs may not
//     args    the parameter list; every entry point returns CUresult
// The rows are in entry_points/, a table for each subsystem;
// entry_points/per_thread_calls.h lists the per-thread variants.

#include <cstdint>

#include "kernels/driver/cuda_graph_types.h"
#include "kernels/driver/cuda_kernel_types.h"
#include "kernels/driver/cuda_structs.h"
#include "kernels/driver/cuda_types.h"
#include "kernels/driver/entry_points/device_calls.h"
#include "kernels/driver/entry_points/kernel_calls.h"
#include "kernels/driver/entry_points/memory_calls.h"
#include "kernels/driver/entry_points/per_thread_calls.h"
#include "kernels/driver/entry_points/stream_calls.h"
#include "kernels/driver/entry_points/transfer_calls.h"

#define FINESERVE_DRIVER_ENTRY_POINTS(X)    \
  FINESERVE_DRIVER_DEVICE_ENTRY_POINTS(X)   \
  FINESERVE_DRIVER_MEMORY_ENTRY_POINTS(X)   \
  FINESERVE_DRIVER_TRANSFER_ENTRY_POINTS(X) \
  FINESERVE_DRIVER_STREAM_ENTRY_POINTS(X)   \
  FINESERVE_DRIVER_KERNEL_ENTRY_POINTS(X)

namespace fineserve::driver {

// The CUDA version up to which the list has every function that makes the
// device touch memory, in the ABI that a program built with that version calls
// (gate_test.cc compares the list with cuda.h where a toolkit is present).
inline constexpr int kListedCudaVersion = 13000;

enum class Need : uint8_t { kRequired, kOptional };

// A driver's functions, resolved. A member is null only if its row is
// kOptional and the driver lacks it. Plain data: safe to read from any thread
// once filled; owns nothing.
struct EntryPoints {
#define FINESERVE_MEMBER(symbol, name, since, need, args) \
  CUresult(*symbol) args = nullptr;
  FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_MEMBER)
#undef FINESERVE_MEMBER
#define FINESERVE_MEMBER(plain, variant, name, since, args, call) \
  CUresult(*plain##_##variant) args = nullptr;
  FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(FINESERVE_MEMBER)
#undef FINESERVE_MEMBER
};

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_ENTRY_POINTS_H_

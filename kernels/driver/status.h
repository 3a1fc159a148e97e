#ifndef KERNELS_DRIVER_STATUS_H_
#define KERNELS_DRIVER_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/driver/entry_points.h"

namespace fineserve::driver {

// Returns OK for CUDA_SUCCESS. For any other result, the status's message is
// `what` (the call and its arguments) followed by the driver's own words:
// "cuMemCreate(2097152 bytes): CUDA_ERROR_OUT_OF_MEMORY (2): out of memory".
// Any thread.
absl::Status ToStatus(const EntryPoints& driver, CUresult result,
                      absl::string_view what);

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_STATUS_H_

#ifndef TOOLS_LAB_DEVICE_MACHINE_DRIVER_TYPES_H_
#define TOOLS_LAB_DEVICE_MACHINE_DRIVER_TYPES_H_

// Names the driver's types for the emulator, which then need not repeat
// `driver::`.

#include <cstdint>

#include "kernels/driver/cuda_types.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::emucuda {

using driver::CUcontext;
using driver::CUdevice;
using driver::CUdeviceptr;
using driver::CUevent;
using driver::CUmemGenericAllocationHandle;
using driver::CUmemoryPool;
using driver::CUresult;
using driver::CUstream;
using driver::Descriptor;
using enum driver::CUresult;

// CUDA_ERROR_ECC_UNCORRECTABLE, which FineServe's own code does not define.
inline constexpr CUresult kEccUncorrectable = static_cast<CUresult>(214);

inline constexpr int kMaxDevices = 8;
inline constexpr uint64_t kGranularity = uint64_t{2} << 20;

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_MACHINE_DRIVER_TYPES_H_

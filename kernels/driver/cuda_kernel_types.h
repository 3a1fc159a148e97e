#ifndef KERNELS_DRIVER_CUDA_KERNEL_TYPES_H_
#define KERNELS_DRIVER_CUDA_KERNEL_TYPES_H_

// The CUDA Driver API types for libraries and kernels; cuda_types.h declares
// the rest. Values and layouts are CUDA 13's, checked by cuda_types_check.cc.

#include <cstdint>

#include "kernels/driver/cuda_types.h"

namespace fineserve::driver {

using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;
using CUlinkState = struct CUlinkState_st*;
using CUlaunchAttribute = struct CUlaunchAttribute_st;

// Options of just-in-time compilation and of loading. We pass them on and never
// read them.
enum CUjit_option : unsigned int {};
enum CUjitInputType : unsigned int {};
enum CUlibraryOption : unsigned int {};
enum CUfunc_cache : unsigned int {};

enum CUmoduleLoadingMode : unsigned int {
  CU_MODULE_EAGER_LOADING = 1,
  CU_MODULE_LAZY_LOADING = 2,
};

struct CUlaunchConfig {
  unsigned int gridDimX;
  unsigned int gridDimY;
  unsigned int gridDimZ;
  unsigned int blockDimX;
  unsigned int blockDimY;
  unsigned int blockDimZ;
  unsigned int sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned int numAttrs;
};

enum CUfunction_attribute : unsigned int {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
  CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
  CU_FUNC_ATTRIBUTE_MAX = 16,
};

// Tensor descriptors for kernels, on devices from compute capability 9.0 on. We
// never read them.
struct CUtensorMap {
  uint64_t opaque[16];
};
enum CUtensorMapDataType : unsigned int {};
enum CUtensorMapInterleave : unsigned int {};
enum CUtensorMapSwizzle : unsigned int {};
enum CUtensorMapL2promotion : unsigned int {};
enum CUtensorMapFloatOOBfill : unsigned int {};

struct CUDA_LAUNCH_PARAMS {
  CUfunction function;
  unsigned int gridDimX;
  unsigned int gridDimY;
  unsigned int gridDimZ;
  unsigned int blockDimX;
  unsigned int blockDimY;
  unsigned int blockDimZ;
  unsigned int sharedMemBytes;
  CUstream hStream;
  void** kernelParams;
};

}  // namespace fineserve::driver

#endif  // KERNELS_DRIVER_CUDA_KERNEL_TYPES_H_

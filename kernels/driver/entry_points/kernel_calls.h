#ifndef KERNELS_DRIVER_ENTRY_POINTS_KERNEL_CALLS_H_
#define KERNELS_DRIVER_ENTRY_POINTS_KERNEL_CALLS_H_

// Libraries and kernels.
// Columns: kernels/driver/entry_points.h.

// clang-format off
#define FINESERVE_DRIVER_KERNEL_ENTRY_POINTS(X)                                \
  /* Libraries and kernels */                                                  \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, kOptional, \
    (int* least, int* greatest))                                               \
  X(cuLibraryLoadData,          cuLibraryLoadData,          12000, kOptional,  \
    (CUlibrary* library, const void* code, CUjit_option* jit_options,          \
     void** jit_values, unsigned int jit_count, CUlibraryOption* options,      \
     void** values, unsigned int count))                                       \
  X(cuLibraryUnload,            cuLibraryUnload,            12000, kOptional,  \
    (CUlibrary library))                                                       \
  X(cuLibraryGetKernel,         cuLibraryGetKernel,         12000, kOptional,  \
    (CUkernel* kernel, CUlibrary library, const char* name))                   \
  X(cuKernelGetFunction,        cuKernelGetFunction,        12000, kOptional,  \
    (CUfunction* function, CUkernel kernel))                                   \
  X(cuKernelGetName,            cuKernelGetName,            12030, kOptional,  \
    (const char** name, CUkernel kernel))                                      \
  X(cuKernelGetAttribute,       cuKernelGetAttribute,       12000, kOptional,  \
    (int* value, CUfunction_attribute attribute, CUkernel kernel,              \
     CUdevice device))                                                         \
  X(cuKernelSetAttribute,       cuKernelSetAttribute,       12000, kOptional,  \
    (CUfunction_attribute attribute, int value, CUkernel kernel,               \
     CUdevice device))                                                         \
  X(cuLaunchKernel,             cuLaunchKernel,              4000, kOptional,  \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y,            \
     unsigned int grid_z, unsigned int block_x, unsigned int block_y,          \
     unsigned int block_z, unsigned int shared_bytes, CUstream stream,         \
     void** arguments, void** extra))                                          \
  X(cuLaunchCooperativeKernel,  cuLaunchCooperativeKernel,   9000, kOptional,  \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y,            \
     unsigned int grid_z, unsigned int block_x, unsigned int block_y,          \
     unsigned int block_z, unsigned int shared_bytes, CUstream stream,         \
     void** arguments))                                                        \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,                      \
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, kOptional,     \
    (int* blocks, CUfunction function, int block_threads, size_t shared_bytes, \
     unsigned int flags))                                                      \
  X(cuModuleLoad,               cuModuleLoad,                2000, kOptional,  \
    (CUmodule* module, const char* file))                                      \
  X(cuModuleLoadData,           cuModuleLoadData,            2000, kOptional,  \
    (CUmodule* module, const void* image))                                     \
  X(cuModuleLoadDataEx,         cuModuleLoadDataEx,          2010, kOptional,  \
    (CUmodule* module, const void* image, unsigned int count,                  \
     CUjit_option* options, void** values))                                    \
  X(cuModuleLoadFatBinary,      cuModuleLoadFatBinary,       2000, kOptional,  \
    (CUmodule* module, const void* image))                                     \
  X(cuModuleUnload,             cuModuleUnload,              2000, kOptional,  \
    (CUmodule module))                                                         \
  X(cuModuleGetLoadingMode,     cuModuleGetLoadingMode,     11070, kOptional,  \
    (CUmoduleLoadingMode* mode))                                               \
  X(cuModuleGetFunction,        cuModuleGetFunction,         2000, kOptional,  \
    (CUfunction* function, CUmodule module, const char* name))                 \
  X(cuModuleGetGlobal_v2,       cuModuleGetGlobal,           3020, kOptional,  \
    (CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name))  \
  X(cuLibraryLoadFromFile,      cuLibraryLoadFromFile,      12000, kOptional,  \
    (CUlibrary* library, const char* file, CUjit_option* jit_options,          \
     void** jit_values, unsigned int jit_count, CUlibraryOption* options,      \
     void** values, unsigned int count))                                       \
  X(cuLibraryGetModule,         cuLibraryGetModule,         12000, kOptional,  \
    (CUmodule* module, CUlibrary library))                                     \
  X(cuFuncGetName,              cuFuncGetName,              12030, kOptional,  \
    (const char** name, CUfunction function))                                  \
  X(cuFuncGetAttribute,         cuFuncGetAttribute,          2020, kOptional,  \
    (int* value, CUfunction_attribute attribute, CUfunction function))         \
  X(cuFuncSetAttribute,         cuFuncSetAttribute,          9000, kOptional,  \
    (CUfunction function, CUfunction_attribute attribute, int value))          \
  X(cuFuncSetCacheConfig,       cuFuncSetCacheConfig,        3000, kOptional,  \
    (CUfunction function, CUfunc_cache preferred))                             \
  X(cuLaunchKernelEx,           cuLaunchKernelEx,           11060, kOptional,  \
    (const CUlaunchConfig* config, CUfunction function, void** arguments,      \
     void** extra))                                                            \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor,                               \
    cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, kOptional,              \
    (int* blocks, CUfunction function, int block_threads,                      \
     size_t dynamic_shared_bytes))                                             \
  X(cuOccupancyMaxPotentialBlockSize,                                          \
    cuOccupancyMaxPotentialBlockSize, 6050, kOptional,                         \
    (int* grid_blocks, int* block_threads, CUfunction function,                \
     CUoccupancyB2DSize shared_bytes_of, size_t dynamic_shared_bytes,          \
     int limit))                                                               \
  X(cuOccupancyMaxPotentialBlockSizeWithFlags,                                 \
    cuOccupancyMaxPotentialBlockSizeWithFlags, 7000, kOptional,                \
    (int* grid_blocks, int* block_threads, CUfunction function,                \
     CUoccupancyB2DSize shared_bytes_of, size_t dynamic_shared_bytes,          \
     int limit, unsigned int flags))                                           \
  X(cuOccupancyMaxActiveClusters,                                              \
    cuOccupancyMaxActiveClusters, 11070, kOptional,                            \
    (int* clusters, CUfunction function, const CUlaunchConfig* config))        \
  X(cuLaunchCooperativeKernelMultiDevice,                                      \
    cuLaunchCooperativeKernelMultiDevice, 9000, kOptional,                     \
    (CUDA_LAUNCH_PARAMS* launches, unsigned int count, unsigned int flags))    \
  /* Launches whose arguments were set before */                               \
  X(cuLaunch,                   cuLaunch,                    2000, kOptional,  \
    (CUfunction function))                                                     \
  X(cuLaunchGrid,               cuLaunchGrid,                2000, kOptional,  \
    (CUfunction function, int grid_x, int grid_y))                             \
  X(cuLaunchGridAsync,          cuLaunchGridAsync,           2000, kOptional,  \
    (CUfunction function, int grid_x, int grid_y, CUstream stream))            \
  /* Linking of device code */                                                 \
  X(cuLinkCreate_v2,            cuLinkCreate,                6050, kOptional,  \
    (unsigned int count, CUjit_option* options, void** values,                 \
     CUlinkState* state))                                                      \
  X(cuLinkAddData_v2,           cuLinkAddData,               6050, kOptional,  \
    (CUlinkState state, CUjitInputType type, void* data, size_t bytes,         \
     const char* name, unsigned int count, CUjit_option* options,              \
     void** values))                                                           \
  X(cuLinkComplete,             cuLinkComplete,              5050, kOptional,  \
    (CUlinkState state, void** code, size_t* bytes))                           \
  X(cuLinkDestroy,              cuLinkDestroy,               5050, kOptional,  \
    (CUlinkState state))                                                       \
  /* Descriptors of tensors */                                                 \
  X(cuTensorMapEncodeTiled,     cuTensorMapEncodeTiled,     12000, kOptional,  \
    (CUtensorMap* map, CUtensorMapDataType type, uint32_t rank, void* address, \
     const uint64_t* extents, const uint64_t* strides, const uint32_t* box,    \
     const uint32_t* element_strides, CUtensorMapInterleave interleave,        \
     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,             \
     CUtensorMapFloatOOBfill fill))                                            \
  X(cuTensorMapEncodeIm2col,    cuTensorMapEncodeIm2col,    12000, kOptional,  \
    (CUtensorMap* map, CUtensorMapDataType type, uint32_t rank, void* address, \
     const uint64_t* extents, const uint64_t* strides, const int* lower,       \
     const int* upper, uint32_t channels, uint32_t pixels,                     \
     const uint32_t* element_strides, CUtensorMapInterleave interleave,        \
     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,             \
     CUtensorMapFloatOOBfill fill))                                            \
  X(cuTensorMapReplaceAddress,  cuTensorMapReplaceAddress,  12000, kOptional,  \
    (CUtensorMap* map, void* address))
// clang-format on

#endif  // KERNELS_DRIVER_ENTRY_POINTS_KERNEL_CALLS_H_

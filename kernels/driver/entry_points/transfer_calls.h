#ifndef KERNELS_DRIVER_ENTRY_POINTS_TRANSFER_CALLS_H_
#define KERNELS_DRIVER_ENTRY_POINTS_TRANSFER_CALLS_H_

// Copies and fills.
// Columns: kernels/driver/entry_points.h.

// clang-format off
#define FINESERVE_DRIVER_TRANSFER_ENTRY_POINTS(X)                              \
  /* Copies and fills */                                                       \
  X(cuMemcpy,                   cuMemcpy,                    4000, kOptional,  \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes))                          \
  X(cuMemcpyAsync,              cuMemcpyAsync,               4000, kOptional,  \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))         \
  X(cuMemcpyHtoD_v2,            cuMemcpyHtoD,                3020, kRequired,  \
    (CUdeviceptr to, const void* from, size_t bytes))                          \
  X(cuMemcpyDtoH_v2,            cuMemcpyDtoH,                3020, kRequired,  \
    (void* to, CUdeviceptr from, size_t bytes))                                \
  X(cuMemcpyDtoD_v2,            cuMemcpyDtoD,                3020, kOptional,  \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes))                          \
  X(cuMemcpyHtoDAsync_v2,       cuMemcpyHtoDAsync,           3020, kOptional,  \
    (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))         \
  X(cuMemcpyDtoHAsync_v2,       cuMemcpyDtoHAsync,           3020, kOptional,  \
    (void* to, CUdeviceptr from, size_t bytes, CUstream stream))               \
  X(cuMemcpyDtoDAsync_v2,       cuMemcpyDtoDAsync,           3020, kOptional,  \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))         \
  X(cuMemsetD8_v2,              cuMemsetD8,                  3020, kRequired,  \
    (CUdeviceptr to, unsigned char value, size_t count))                       \
  X(cuMemsetD32_v2,             cuMemsetD32,                 3020, kOptional,  \
    (CUdeviceptr to, unsigned int value, size_t count))                        \
  X(cuMemsetD8Async,            cuMemsetD8Async,             3020, kRequired,  \
    (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))      \
  X(cuMemsetD32Async,           cuMemsetD32Async,            3020, kRequired,  \
    (CUdeviceptr to, unsigned int value, size_t count, CUstream stream))       \
  X(cuMemcpyPeer,               cuMemcpyPeer,                4000, kOptional,  \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from,                   \
     CUcontext from_context, size_t bytes))                                    \
  X(cuMemcpyPeerAsync,          cuMemcpyPeerAsync,           4000, kOptional,  \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from,                   \
     CUcontext from_context, size_t bytes, CUstream stream))                   \
  X(cuMemcpyBatchAsync,         cuMemcpyBatchAsync,         12080, kOptional,  \
    (CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,          \
     CUmemcpyAttributes* attributes, size_t* attribute_starts,                 \
     size_t attribute_count, size_t* failed, CUstream stream))                 \
  X(cuMemcpyBatchAsync_v2,      cuMemcpyBatchAsync,         13000, kOptional,  \
    (CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,          \
     CUmemcpyAttributes* attributes, size_t* attribute_starts,                 \
     size_t attribute_count, CUstream stream))                                 \
  X(cuMemcpy2D_v2,              cuMemcpy2D,                  3020, kOptional,  \
    (const CUDA_MEMCPY2D* copy))                                               \
  X(cuMemcpy2DUnaligned_v2,     cuMemcpy2DUnaligned,         3020, kOptional,  \
    (const CUDA_MEMCPY2D* copy))                                               \
  X(cuMemcpy2DAsync_v2,         cuMemcpy2DAsync,             3020, kOptional,  \
    (const CUDA_MEMCPY2D* copy, CUstream stream))                              \
  X(cuMemcpy3D_v2,              cuMemcpy3D,                  3020, kOptional,  \
    (const CUDA_MEMCPY3D* copy))                                               \
  X(cuMemcpy3DAsync_v2,         cuMemcpy3DAsync,             3020, kOptional,  \
    (const CUDA_MEMCPY3D* copy, CUstream stream))                              \
  X(cuMemcpy3DPeer,             cuMemcpy3DPeer,              4000, kOptional,  \
    (const CUDA_MEMCPY3D_PEER* copy))                                          \
  X(cuMemcpy3DPeerAsync,        cuMemcpy3DPeerAsync,         4000, kOptional,  \
    (const CUDA_MEMCPY3D_PEER* copy, CUstream stream))                         \
  X(cuMemcpy3DBatchAsync,       cuMemcpy3DBatchAsync,       12080, kOptional,  \
    (size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed,             \
     unsigned long long flags, CUstream stream))                               \
  X(cuMemcpy3DBatchAsync_v2,    cuMemcpy3DBatchAsync,       13000, kOptional,  \
    (size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags,   \
     CUstream stream))                                                         \
  X(cuMemcpyDtoA_v2,            cuMemcpyDtoA,                3020, kOptional,  \
    (CUarray to, size_t offset, CUdeviceptr from, size_t bytes))               \
  X(cuMemcpyAtoD_v2,            cuMemcpyAtoD,                3020, kOptional,  \
    (CUdeviceptr to, CUarray from, size_t offset, size_t bytes))               \
  X(cuMemBatchDecompressAsync,  cuMemBatchDecompressAsync,  12060, kOptional,  \
    (CUmemDecompressParams* streams, size_t count, unsigned int flags,         \
     size_t* failed, CUstream stream))                                         \
  X(cuMemsetD16_v2,             cuMemsetD16,                 3020, kOptional,  \
    (CUdeviceptr to, unsigned short value, size_t count))                      \
  X(cuMemsetD16Async,           cuMemsetD16Async,            3020, kOptional,  \
    (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))     \
  X(cuMemsetD2D8_v2,            cuMemsetD2D8,                3020, kOptional,  \
    (CUdeviceptr to, size_t pitch, unsigned char value, size_t width,          \
     size_t rows))                                                             \
  X(cuMemsetD2D16_v2,           cuMemsetD2D16,               3020, kOptional,  \
    (CUdeviceptr to, size_t pitch, unsigned short value, size_t width,         \
     size_t rows))                                                             \
  X(cuMemsetD2D32_v2,           cuMemsetD2D32,               3020, kOptional,  \
    (CUdeviceptr to, size_t pitch, unsigned int value, size_t width,           \
     size_t rows))                                                             \
  X(cuMemsetD2D8Async,          cuMemsetD2D8Async,           3020, kOptional,  \
    (CUdeviceptr to, size_t pitch, unsigned char value, size_t width,          \
     size_t rows, CUstream stream))                                            \
  X(cuMemsetD2D16Async,         cuMemsetD2D16Async,          3020, kOptional,  \
    (CUdeviceptr to, size_t pitch, unsigned short value, size_t width,         \
     size_t rows, CUstream stream))                                            \
  X(cuMemsetD2D32Async,         cuMemsetD2D32Async,          3020, kOptional,  \
    (CUdeviceptr to, size_t pitch, unsigned int value, size_t width,           \
     size_t rows, CUstream stream))
// clang-format on

#endif  // KERNELS_DRIVER_ENTRY_POINTS_TRANSFER_CALLS_H_

#ifndef KERNELS_DRIVER_ENTRY_POINTS_PER_THREAD_CALLS_H_
#define KERNELS_DRIVER_ENTRY_POINTS_PER_THREAD_CALLS_H_

// The per-thread variants of entry_points.h's functions: the same function,
// except that stream 0 means the calling thread's own default stream. Programs
// compiled with --default-stream per-thread link against them or ask
// cuGetProcAddress with CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.
//
//   X(plain, variant, name, since, args, call)
//     plain    the function's own row in entry_points.h
//     variant  ptsz (takes a stream) or ptds (works on the default stream);
//              the exported symbol is plain_variant
//     name     what a program asks cuGetProcAddress for
//     since    the CUDA version that introduced the variant's ABI
//     args     the parameter list, as in the plain row
//     call     the parameters' names
// No variant is required of a driver.

// clang-format off
#define FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(X)                            \
  X(cuMemPrefetchAsync,          ptsz, cuMemPrefetchAsync,          8000,      \
    (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),     \
    (address, bytes, device, stream))                                          \
  X(cuMemPrefetchAsync_v2,       ptsz, cuMemPrefetchAsync,         12020,      \
    (CUdeviceptr address, size_t bytes, CUmemLocation location,                \
     unsigned int flags, CUstream stream),                                     \
    (address, bytes, location, flags, stream))                                 \
  X(cuMemPrefetchBatchAsync,     ptsz, cuMemPrefetchBatchAsync,    13000,      \
    (CUdeviceptr* addresses, size_t* bytes, size_t count,                      \
     CUmemLocation* locations, size_t* location_starts, size_t location_count, \
     unsigned long long flags, CUstream stream),                               \
    (addresses, bytes, count, locations, location_starts, location_count,      \
     flags, stream))                                                           \
  X(cuMemDiscardBatchAsync,      ptsz, cuMemDiscardBatchAsync,     13000,      \
    (CUdeviceptr* addresses, size_t* bytes, size_t count,                      \
     unsigned long long flags, CUstream stream),                               \
    (addresses, bytes, count, flags, stream))                                  \
  X(cuMemDiscardAndPrefetchBatchAsync, ptsz,                                   \
    cuMemDiscardAndPrefetchBatchAsync, 13000,                                  \
    (CUdeviceptr* addresses, size_t* bytes, size_t count,                      \
     CUmemLocation* locations, size_t* location_starts, size_t location_count, \
     unsigned long long flags, CUstream stream),                               \
    (addresses, bytes, count, locations, location_starts, location_count,      \
     flags, stream))                                                           \
  X(cuMemAllocAsync,             ptsz, cuMemAllocAsync,            11020,      \
    (CUdeviceptr* address, size_t bytes, CUstream stream),                     \
    (address, bytes, stream))                                                  \
  X(cuMemAllocFromPoolAsync,     ptsz, cuMemAllocFromPoolAsync,    11020,      \
    (CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream),  \
    (address, bytes, pool, stream))                                            \
  X(cuMemFreeAsync,              ptsz, cuMemFreeAsync,             11020,      \
    (CUdeviceptr address, CUstream stream),                                    \
    (address, stream))                                                         \
  X(cuMemcpy,                    ptds, cuMemcpy,                    7000,      \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes),                          \
    (to, from, bytes))                                                         \
  X(cuMemcpyAsync,               ptsz, cuMemcpyAsync,               7000,      \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),         \
    (to, from, bytes, stream))                                                 \
  X(cuMemcpyHtoD_v2,             ptds, cuMemcpyHtoD,                7000,      \
    (CUdeviceptr to, const void* from, size_t bytes),                          \
    (to, from, bytes))                                                         \
  X(cuMemcpyDtoH_v2,             ptds, cuMemcpyDtoH,                7000,      \
    (void* to, CUdeviceptr from, size_t bytes),                                \
    (to, from, bytes))                                                         \
  X(cuMemcpyDtoD_v2,             ptds, cuMemcpyDtoD,                7000,      \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes),                          \
    (to, from, bytes))                                                         \
  X(cuMemcpyHtoDAsync_v2,        ptsz, cuMemcpyHtoDAsync,           7000,      \
    (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),         \
    (to, from, bytes, stream))                                                 \
  X(cuMemcpyDtoHAsync_v2,        ptsz, cuMemcpyDtoHAsync,           7000,      \
    (void* to, CUdeviceptr from, size_t bytes, CUstream stream),               \
    (to, from, bytes, stream))                                                 \
  X(cuMemcpyDtoDAsync_v2,        ptsz, cuMemcpyDtoDAsync,           7000,      \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),         \
    (to, from, bytes, stream))                                                 \
  X(cuMemsetD8_v2,               ptds, cuMemsetD8,                  7000,      \
    (CUdeviceptr to, unsigned char value, size_t count),                       \
    (to, value, count))                                                        \
  X(cuMemsetD32_v2,              ptds, cuMemsetD32,                 7000,      \
    (CUdeviceptr to, unsigned int value, size_t count),                        \
    (to, value, count))                                                        \
  X(cuMemsetD8Async,             ptsz, cuMemsetD8Async,             7000,      \
    (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),      \
    (to, value, count, stream))                                                \
  X(cuMemsetD32Async,            ptsz, cuMemsetD32Async,            7000,      \
    (CUdeviceptr to, unsigned int value, size_t count, CUstream stream),       \
    (to, value, count, stream))                                                \
  X(cuMemcpyPeer,                ptds, cuMemcpyPeer,                7000,      \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from,                   \
     CUcontext from_context, size_t bytes),                                    \
    (to, to_context, from, from_context, bytes))                               \
  X(cuMemcpyPeerAsync,           ptsz, cuMemcpyPeerAsync,           7000,      \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from,                   \
     CUcontext from_context, size_t bytes, CUstream stream),                   \
    (to, to_context, from, from_context, bytes, stream))                       \
  X(cuMemcpyBatchAsync,          ptsz, cuMemcpyBatchAsync,         12080,      \
    (CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,          \
     CUmemcpyAttributes* attributes, size_t* attribute_starts,                 \
     size_t attribute_count, size_t* failed, CUstream stream),                 \
    (to, from, bytes, count, attributes, attribute_starts, attribute_count,    \
     failed, stream))                                                          \
  X(cuMemcpyBatchAsync_v2,       ptsz, cuMemcpyBatchAsync,         13000,      \
    (CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,          \
     CUmemcpyAttributes* attributes, size_t* attribute_starts,                 \
     size_t attribute_count, CUstream stream),                                 \
    (to, from, bytes, count, attributes, attribute_starts, attribute_count,    \
     stream))                                                                  \
  X(cuMemcpy2D_v2,               ptds, cuMemcpy2D,                  7000,      \
    (const CUDA_MEMCPY2D* copy),                                               \
    (copy))                                                                    \
  X(cuMemcpy2DUnaligned_v2,      ptds, cuMemcpy2DUnaligned,         7000,      \
    (const CUDA_MEMCPY2D* copy),                                               \
    (copy))                                                                    \
  X(cuMemcpy2DAsync_v2,          ptsz, cuMemcpy2DAsync,             7000,      \
    (const CUDA_MEMCPY2D* copy, CUstream stream),                              \
    (copy, stream))                                                            \
  X(cuMemcpy3D_v2,               ptds, cuMemcpy3D,                  7000,      \
    (const CUDA_MEMCPY3D* copy),                                               \
    (copy))                                                                    \
  X(cuMemcpy3DAsync_v2,          ptsz, cuMemcpy3DAsync,             7000,      \
    (const CUDA_MEMCPY3D* copy, CUstream stream),                              \
    (copy, stream))                                                            \
  X(cuMemcpy3DPeer,              ptds, cuMemcpy3DPeer,              7000,      \
    (const CUDA_MEMCPY3D_PEER* copy),                                          \
    (copy))                                                                    \
  X(cuMemcpy3DPeerAsync,         ptsz, cuMemcpy3DPeerAsync,         7000,      \
    (const CUDA_MEMCPY3D_PEER* copy, CUstream stream),                         \
    (copy, stream))                                                            \
  X(cuMemcpyDtoA_v2,             ptds, cuMemcpyDtoA,                 7000,     \
    (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),               \
    (to, offset, from, bytes))                                                 \
  X(cuMemcpyAtoD_v2,             ptds, cuMemcpyAtoD,                 7000,     \
    (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),               \
    (to, from, offset, bytes))                                                 \
  X(cuMemBatchDecompressAsync,   ptsz, cuMemBatchDecompressAsync,   12060,     \
    (CUmemDecompressParams* streams, size_t count, unsigned int flags,         \
     size_t* failed, CUstream stream),                                         \
    (streams, count, flags, failed, stream))                                   \
  X(cuStreamBatchMemOp,          ptsz, cuStreamBatchMemOp,           8000,     \
    (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* operations,\
     unsigned int flags),                                                      \
    (stream, count, operations, flags))                                        \
  X(cuStreamBatchMemOp_v2,       ptsz, cuStreamBatchMemOp,          11070,     \
    (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* operations,\
     unsigned int flags),                                                      \
    (stream, count, operations, flags))                                        \
  X(cuMemcpy3DBatchAsync,        ptsz, cuMemcpy3DBatchAsync,       12080,      \
    (size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed,             \
     unsigned long long flags, CUstream stream),                               \
    (count, copies, failed, flags, stream))                                    \
  X(cuMemcpy3DBatchAsync_v2,     ptsz, cuMemcpy3DBatchAsync,       13000,      \
    (size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags,   \
     CUstream stream),                                                         \
    (count, copies, flags, stream))                                            \
  X(cuMemsetD16_v2,              ptds, cuMemsetD16,                 7000,      \
    (CUdeviceptr to, unsigned short value, size_t count),                      \
    (to, value, count))                                                        \
  X(cuMemsetD16Async,            ptsz, cuMemsetD16Async,            7000,      \
    (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),     \
    (to, value, count, stream))                                                \
  X(cuMemsetD2D8_v2,             ptds, cuMemsetD2D8,                7000,      \
    (CUdeviceptr to, size_t pitch, unsigned char value, size_t width,          \
     size_t rows),                                                             \
    (to, pitch, value, width, rows))                                           \
  X(cuMemsetD2D16_v2,            ptds, cuMemsetD2D16,               7000,      \
    (CUdeviceptr to, size_t pitch, unsigned short value, size_t width,         \
     size_t rows),                                                             \
    (to, pitch, value, width, rows))                                           \
  X(cuMemsetD2D32_v2,            ptds, cuMemsetD2D32,               7000,      \
    (CUdeviceptr to, size_t pitch, unsigned int value, size_t width,           \
     size_t rows),                                                             \
    (to, pitch, value, width, rows))                                           \
  X(cuMemsetD2D8Async,           ptsz, cuMemsetD2D8Async,           7000,      \
    (CUdeviceptr to, size_t pitch, unsigned char value, size_t width,          \
     size_t rows, CUstream stream),                                            \
    (to, pitch, value, width, rows, stream))                                   \
  X(cuMemsetD2D16Async,          ptsz, cuMemsetD2D16Async,          7000,      \
    (CUdeviceptr to, size_t pitch, unsigned short value, size_t width,         \
     size_t rows, CUstream stream),                                            \
    (to, pitch, value, width, rows, stream))                                   \
  X(cuMemsetD2D32Async,          ptsz, cuMemsetD2D32Async,          7000,      \
    (CUdeviceptr to, size_t pitch, unsigned int value, size_t width,           \
     size_t rows, CUstream stream),                                            \
    (to, pitch, value, width, rows, stream))                                   \
  X(cuStreamSynchronize,         ptsz, cuStreamSynchronize,         7000,      \
    (CUstream stream),                                                         \
    (stream))                                                                  \
  X(cuStreamQuery,               ptsz, cuStreamQuery,               7000,      \
    (CUstream stream),                                                         \
    (stream))                                                                  \
  X(cuStreamIsCapturing,         ptsz, cuStreamIsCapturing,        10000,      \
    (CUstream stream, CUstreamCaptureStatus* status),                          \
    (stream, status))                                                          \
  X(cuStreamWaitEvent,           ptsz, cuStreamWaitEvent,           7000,      \
    (CUstream stream, CUevent event, unsigned int flags),                      \
    (stream, event, flags))                                                    \
  X(cuLaunchHostFunc,            ptsz, cuLaunchHostFunc,           10000,      \
    (CUstream stream, CUhostFn function, void* user_data),                     \
    (stream, function, user_data))                                             \
  X(cuStreamWriteValue32,        ptsz, cuStreamWriteValue32,        8000,      \
    (CUstream stream, CUdeviceptr address, uint32_t value,                     \
     unsigned int flags),                                                      \
    (stream, address, value, flags))                                           \
  X(cuStreamWriteValue32_v2,     ptsz, cuStreamWriteValue32,       11070,      \
    (CUstream stream, CUdeviceptr address, uint32_t value,                     \
     unsigned int flags),                                                      \
    (stream, address, value, flags))                                           \
  X(cuEventRecord,               ptsz, cuEventRecord,               7000,      \
    (CUevent event, CUstream stream),                                          \
    (event, stream))                                                           \
  X(cuStreamGetPriority,         ptsz, cuStreamGetPriority,         7000,      \
    (CUstream stream, int* priority),                                          \
    (stream, priority))                                                        \
  X(cuStreamGetFlags,            ptsz, cuStreamGetFlags,            7000,      \
    (CUstream stream, unsigned int* flags),                                    \
    (stream, flags))                                                           \
  X(cuStreamGetId,               ptsz, cuStreamGetId,              12000,      \
    (CUstream stream, unsigned long long* id),                                 \
    (stream, id))                                                              \
  X(cuStreamGetCtx,              ptsz, cuStreamGetCtx,              9020,      \
    (CUstream stream, CUcontext* context),                                     \
    (stream, context))                                                         \
  X(cuStreamGetDevice,           ptsz, cuStreamGetDevice,          12080,      \
    (CUstream stream, CUdevice* device),                                       \
    (stream, device))                                                          \
  X(cuStreamAddCallback,         ptsz, cuStreamAddCallback,         7000,      \
    (CUstream stream, CUstreamCallback callback, void* user_data,              \
     unsigned int flags),                                                      \
    (stream, callback, user_data, flags))                                      \
  X(cuStreamAttachMemAsync,      ptsz, cuStreamAttachMemAsync,      7000,      \
    (CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags),  \
    (stream, address, bytes, flags))                                           \
  X(cuStreamWriteValue64,        ptsz, cuStreamWriteValue64,        9000,      \
    (CUstream stream, CUdeviceptr address, uint64_t value,                     \
     unsigned int flags),                                                      \
    (stream, address, value, flags))                                           \
  X(cuStreamWriteValue64_v2,     ptsz, cuStreamWriteValue64,       11070,      \
    (CUstream stream, CUdeviceptr address, uint64_t value,                     \
     unsigned int flags),                                                      \
    (stream, address, value, flags))                                           \
  X(cuStreamWaitValue32,         ptsz, cuStreamWaitValue32,         8000,      \
    (CUstream stream, CUdeviceptr address, uint32_t value,                     \
     unsigned int flags),                                                      \
    (stream, address, value, flags))                                           \
  X(cuStreamWaitValue32_v2,      ptsz, cuStreamWaitValue32,        11070,      \
    (CUstream stream, CUdeviceptr address, uint32_t value,                     \
     unsigned int flags),                                                      \
    (stream, address, value, flags))                                           \
  X(cuStreamWaitValue64,         ptsz, cuStreamWaitValue64,         9000,      \
    (CUstream stream, CUdeviceptr address, uint64_t value,                     \
     unsigned int flags),                                                      \
    (stream, address, value, flags))                                           \
  X(cuStreamWaitValue64_v2,      ptsz, cuStreamWaitValue64,        11070,      \
    (CUstream stream, CUdeviceptr address, uint64_t value,                     \
     unsigned int flags),                                                      \
    (stream, address, value, flags))                                           \
  X(cuStreamBeginCapture,        ptsz, cuStreamBeginCapture,       10000,      \
    (CUstream stream),                                                         \
    (stream))                                                                  \
  X(cuStreamBeginCapture_v2,     ptsz, cuStreamBeginCapture,       10010,      \
    (CUstream stream, CUstreamCaptureMode mode),                               \
    (stream, mode))                                                            \
  X(cuStreamBeginCaptureToGraph, ptsz, cuStreamBeginCaptureToGraph, 12030,     \
    (CUstream stream, CUgraph graph, const CUgraphNode* dependencies,          \
     const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode),    \
    (stream, graph, dependencies, edges, count, mode))                         \
  X(cuStreamEndCapture,          ptsz, cuStreamEndCapture,         10000,      \
    (CUstream stream, CUgraph* graph),                                         \
    (stream, graph))                                                           \
  X(cuStreamGetCaptureInfo_v2,   ptsz, cuStreamGetCaptureInfo,     11030,      \
    (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id,             \
     CUgraph* graph, const CUgraphNode** dependencies, size_t* count),         \
    (stream, status, id, graph, dependencies, count))                          \
  X(cuStreamGetCaptureInfo_v3,   ptsz, cuStreamGetCaptureInfo,     12030,      \
    (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id,             \
     CUgraph* graph, const CUgraphNode** dependencies,                         \
     const CUgraphEdgeData** edges, size_t* count),                            \
    (stream, status, id, graph, dependencies, edges, count))                   \
  X(cuEventRecordWithFlags,      ptsz, cuEventRecordWithFlags,     11010,      \
    (CUevent event, CUstream stream, unsigned int flags),                      \
    (event, stream, flags))                                                    \
  X(cuGraphLaunch,               ptsz, cuGraphLaunch,              10000,      \
    (CUgraphExec exec, CUstream stream),                                       \
    (exec, stream))                                                            \
  X(cuLaunchKernel,              ptsz, cuLaunchKernel,              7000,      \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y,            \
     unsigned int grid_z, unsigned int block_x, unsigned int block_y,          \
     unsigned int block_z, unsigned int shared_bytes, CUstream stream,         \
     void** arguments, void** extra),                                          \
    (function, grid_x, grid_y, grid_z, block_x, block_y, block_z,              \
     shared_bytes, stream, arguments, extra))                                  \
  X(cuLaunchCooperativeKernel,   ptsz, cuLaunchCooperativeKernel,   9000,      \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y,            \
     unsigned int grid_z, unsigned int block_x, unsigned int block_y,          \
     unsigned int block_z, unsigned int shared_bytes, CUstream stream,         \
     void** arguments),                                                        \
    (function, grid_x, grid_y, grid_z, block_x, block_y, block_z,              \
     shared_bytes, stream, arguments))                                         \
  X(cuLaunchKernelEx,            ptsz, cuLaunchKernelEx,           11060,      \
    (const CUlaunchConfig* config, CUfunction function, void** arguments,      \
     void** extra),                                                            \
    (config, function, arguments, extra))
// clang-format on

#endif  // KERNELS_DRIVER_ENTRY_POINTS_PER_THREAD_CALLS_H_

#ifndef KERNELS_DRIVER_ENTRY_POINTS_STREAM_CALLS_H_
#define KERNELS_DRIVER_ENTRY_POINTS_STREAM_CALLS_H_

// Streams, events and graphs.
// Columns: kernels/driver/entry_points.h.

// clang-format off
#define FINESERVE_DRIVER_STREAM_ENTRY_POINTS(X)                                \
  /* Streams and events */                                                     \
  X(cuStreamCreate,             cuStreamCreate,              2000, kRequired,  \
    (CUstream* stream, unsigned int flags))                                    \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority,  5050, kOptional,  \
    (CUstream* stream, unsigned int flags, int priority))                      \
  X(cuStreamDestroy_v2,         cuStreamDestroy,             4000, kRequired,  \
    (CUstream stream))                                                         \
  X(cuStreamSynchronize,        cuStreamSynchronize,         2000, kRequired,  \
    (CUstream stream))                                                         \
  X(cuStreamQuery,              cuStreamQuery,               2000, kOptional,  \
    (CUstream stream))                                                         \
  X(cuStreamIsCapturing,        cuStreamIsCapturing,        10000, kOptional,  \
    (CUstream stream, CUstreamCaptureStatus* status))                          \
  X(cuStreamWaitEvent,          cuStreamWaitEvent,           3020, kOptional,  \
    (CUstream stream, CUevent event, unsigned int flags))                      \
  X(cuLaunchHostFunc,           cuLaunchHostFunc,           10000, kOptional,  \
    (CUstream stream, CUhostFn function, void* user_data))                     \
  X(cuEventCreate,              cuEventCreate,               2000, kRequired,  \
    (CUevent* event, unsigned int flags))                                      \
  X(cuEventRecord,              cuEventRecord,               2000, kRequired,  \
    (CUevent event, CUstream stream))                                          \
  X(cuEventQuery,               cuEventQuery,                2000, kRequired,  \
    (CUevent event))                                                           \
  X(cuEventSynchronize,         cuEventSynchronize,          2000, kOptional,  \
    (CUevent event))                                                           \
  X(cuEventElapsedTime,         cuEventElapsedTime,          2000, kOptional,  \
    (float* milliseconds, CUevent start, CUevent end))                         \
  X(cuEventDestroy_v2,          cuEventDestroy,              4000, kRequired,  \
    (CUevent event))                                                           \
  X(cuStreamGetPriority,        cuStreamGetPriority,         5050, kOptional,  \
    (CUstream stream, int* priority))                                          \
  X(cuStreamGetFlags,           cuStreamGetFlags,            5050, kOptional,  \
    (CUstream stream, unsigned int* flags))                                    \
  X(cuStreamGetId,              cuStreamGetId,              12000, kOptional,  \
    (CUstream stream, unsigned long long* id))                                 \
  X(cuStreamGetCtx,             cuStreamGetCtx,              9020, kOptional,  \
    (CUstream stream, CUcontext* context))                                     \
  X(cuStreamGetDevice,          cuStreamGetDevice,          12080, kOptional,  \
    (CUstream stream, CUdevice* device))                                       \
  X(cuStreamAddCallback,        cuStreamAddCallback,         5000, kOptional,  \
    (CUstream stream, CUstreamCallback callback, void* user_data,              \
     unsigned int flags))                                                      \
  X(cuStreamAttachMemAsync,     cuStreamAttachMemAsync,      6000, kOptional,  \
    (CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags))  \
  X(cuStreamWriteValue32,       cuStreamWriteValue32,        8000, kOptional,  \
    (CUstream stream, CUdeviceptr address, uint32_t value,                     \
     unsigned int flags))                                                      \
  X(cuStreamWriteValue32_v2,    cuStreamWriteValue32,       11070, kOptional,  \
    (CUstream stream, CUdeviceptr address, uint32_t value,                     \
     unsigned int flags))                                                      \
  X(cuStreamWriteValue64,       cuStreamWriteValue64,        9000, kOptional,  \
    (CUstream stream, CUdeviceptr address, uint64_t value,                     \
     unsigned int flags))                                                      \
  X(cuStreamWriteValue64_v2,    cuStreamWriteValue64,       11070, kOptional,  \
    (CUstream stream, CUdeviceptr address, uint64_t value,                     \
     unsigned int flags))                                                      \
  X(cuStreamWaitValue32,        cuStreamWaitValue32,         8000, kOptional,  \
    (CUstream stream, CUdeviceptr address, uint32_t value,                     \
     unsigned int flags))                                                      \
  X(cuStreamWaitValue32_v2,     cuStreamWaitValue32,        11070, kOptional,  \
    (CUstream stream, CUdeviceptr address, uint32_t value,                     \
     unsigned int flags))                                                      \
  X(cuStreamWaitValue64,        cuStreamWaitValue64,         9000, kOptional,  \
    (CUstream stream, CUdeviceptr address, uint64_t value,                     \
     unsigned int flags))                                                      \
  X(cuStreamWaitValue64_v2,     cuStreamWaitValue64,        11070, kOptional,  \
    (CUstream stream, CUdeviceptr address, uint64_t value,                     \
     unsigned int flags))                                                      \
  X(cuStreamBatchMemOp,         cuStreamBatchMemOp,          8000, kOptional,  \
    (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* operations,\
     unsigned int flags))                                                      \
  X(cuStreamBatchMemOp_v2,      cuStreamBatchMemOp,         11070, kOptional,  \
    (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* operations,\
     unsigned int flags))                                                      \
  X(cuStreamBeginCapture,       cuStreamBeginCapture,       10000, kOptional,  \
    (CUstream stream))                                                         \
  X(cuStreamBeginCapture_v2,    cuStreamBeginCapture,       10010, kOptional,  \
    (CUstream stream, CUstreamCaptureMode mode))                               \
  X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, kOptional,\
    (CUstream stream, CUgraph graph, const CUgraphNode* dependencies,          \
     const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode))    \
  X(cuStreamEndCapture,         cuStreamEndCapture,         10000, kOptional,  \
    (CUstream stream, CUgraph* graph))                                         \
  X(cuStreamGetCaptureInfo_v2,  cuStreamGetCaptureInfo,     11030, kOptional,  \
    (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id,             \
     CUgraph* graph, const CUgraphNode** dependencies, size_t* count))         \
  X(cuStreamGetCaptureInfo_v3,  cuStreamGetCaptureInfo,     12030, kOptional,  \
    (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id,             \
     CUgraph* graph, const CUgraphNode** dependencies,                         \
     const CUgraphEdgeData** edges, size_t* count))                            \
  X(cuThreadExchangeStreamCaptureMode,                                         \
    cuThreadExchangeStreamCaptureMode, 10010, kOptional,                       \
    (CUstreamCaptureMode* mode))                                               \
  X(cuEventRecordWithFlags,     cuEventRecordWithFlags,     11010, kOptional,  \
    (CUevent event, CUstream stream, unsigned int flags))                      \
  X(cuEventElapsedTime_v2,      cuEventElapsedTime,         12080, kOptional,  \
    (float* milliseconds, CUevent start, CUevent end))                         \
  /* Graphs */                                                                 \
  X(cuGraphCreate,              cuGraphCreate,              10000, kOptional,  \
    (CUgraph* graph, unsigned int flags))                                      \
  X(cuGraphDestroy,             cuGraphDestroy,             10000, kOptional,  \
    (CUgraph graph))                                                           \
  X(cuGraphGetNodes,            cuGraphGetNodes,            10000, kOptional,  \
    (CUgraph graph, CUgraphNode* nodes, size_t* count))                        \
  X(cuGraphAddMemsetNode,       cuGraphAddMemsetNode,       10000, kOptional,  \
    (CUgraphNode* node, CUgraph graph, const CUgraphNode* after,               \
     size_t after_count, const CUDA_MEMSET_NODE_PARAMS* params,                \
     CUcontext context))                                                       \
  X(cuGraphAddMemcpyNode,       cuGraphAddMemcpyNode,       10000, kOptional,  \
    (CUgraphNode* node, CUgraph graph, const CUgraphNode* after,               \
     size_t after_count, const CUDA_MEMCPY3D* params, CUcontext context))      \
  X(cuGraphInstantiateWithFlags,                                               \
    cuGraphInstantiateWithFlags, 11040, kOptional,                             \
    (CUgraphExec* exec, CUgraph graph, unsigned long long flags))              \
  X(cuGraphLaunch,              cuGraphLaunch,              10000, kOptional,  \
    (CUgraphExec exec, CUstream stream))                                       \
  X(cuGraphExecDestroy,         cuGraphExecDestroy,         10000, kOptional,  \
    (CUgraphExec exec))
// clang-format on

#endif  // KERNELS_DRIVER_ENTRY_POINTS_STREAM_CALLS_H_

#ifndef SHIM_GATE_GATED_CALLS_H_
#define SHIM_GATE_GATED_CALLS_H_

// The driver functions that pass the gate (gate.h) in an engine that may be
// evicted, by symbol: all that make the device touch memory, and all that begin
// or end a capture. A test fails if an entry point in kernels/driver takes a
// stream or a device address and is neither listed here nor among the test's
// own exceptions, each of which has a reason.
//
//   X(symbol)

// clang-format off
#define FINESERVE_GATED_CALLS(X) \
  /* Launches */ \
  X(cuGraphLaunch) \
  X(cuGraphLaunch_ptsz) \
  X(cuLaunchKernel) \
  X(cuLaunchKernel_ptsz) \
  X(cuLaunchCooperativeKernel) \
  X(cuLaunchCooperativeKernel_ptsz) \
  X(cuLaunchKernelEx) \
  X(cuLaunchKernelEx_ptsz) \
  X(cuLaunchCooperativeKernelMultiDevice) \
  X(cuLaunch) \
  X(cuLaunchGrid) \
  X(cuLaunchGridAsync) \
  /* Functions on the host, which may touch memory that it can reach */ \
  X(cuLaunchHostFunc) \
  X(cuLaunchHostFunc_ptsz) \
  X(cuStreamAddCallback) \
  X(cuStreamAddCallback_ptsz) \
  /* Copies */ \
  X(cuMemcpy) \
  X(cuMemcpy_ptds) \
  X(cuMemcpyAsync) \
  X(cuMemcpyAsync_ptsz) \
  X(cuMemcpyHtoD_v2) \
  X(cuMemcpyHtoD_v2_ptds) \
  X(cuMemcpyDtoH_v2) \
  X(cuMemcpyDtoH_v2_ptds) \
  X(cuMemcpyDtoD_v2) \
  X(cuMemcpyDtoD_v2_ptds) \
  X(cuMemcpyHtoDAsync_v2) \
  X(cuMemcpyHtoDAsync_v2_ptsz) \
  X(cuMemcpyDtoHAsync_v2) \
  X(cuMemcpyDtoHAsync_v2_ptsz) \
  X(cuMemcpyDtoDAsync_v2) \
  X(cuMemcpyDtoDAsync_v2_ptsz) \
  X(cuMemcpyPeer) \
  X(cuMemcpyPeer_ptds) \
  X(cuMemcpyPeerAsync) \
  X(cuMemcpyPeerAsync_ptsz) \
  X(cuMemcpyBatchAsync) \
  X(cuMemcpyBatchAsync_ptsz) \
  X(cuMemcpyBatchAsync_v2) \
  X(cuMemcpyBatchAsync_v2_ptsz) \
  X(cuMemcpy2D_v2) \
  X(cuMemcpy2D_v2_ptds) \
  X(cuMemcpy2DUnaligned_v2) \
  X(cuMemcpy2DUnaligned_v2_ptds) \
  X(cuMemcpy2DAsync_v2) \
  X(cuMemcpy2DAsync_v2_ptsz) \
  X(cuMemcpy3D_v2) \
  X(cuMemcpy3D_v2_ptds) \
  X(cuMemcpy3DAsync_v2) \
  X(cuMemcpy3DAsync_v2_ptsz) \
  X(cuMemcpy3DPeer) \
  X(cuMemcpy3DPeer_ptds) \
  X(cuMemcpy3DPeerAsync) \
  X(cuMemcpy3DPeerAsync_ptsz) \
  X(cuMemcpy3DBatchAsync) \
  X(cuMemcpy3DBatchAsync_ptsz) \
  X(cuMemcpy3DBatchAsync_v2) \
  X(cuMemcpy3DBatchAsync_v2_ptsz) \
  X(cuMemcpyDtoA_v2) \
  X(cuMemcpyDtoA_v2_ptds) \
  X(cuMemcpyAtoD_v2) \
  X(cuMemcpyAtoD_v2_ptds) \
  X(cuMemBatchDecompressAsync) \
  X(cuMemBatchDecompressAsync_ptsz) \
  /* Fills */ \
  X(cuMemsetD8_v2) \
  X(cuMemsetD8_v2_ptds) \
  X(cuMemsetD32_v2) \
  X(cuMemsetD32_v2_ptds) \
  X(cuMemsetD8Async) \
  X(cuMemsetD8Async_ptsz) \
  X(cuMemsetD32Async) \
  X(cuMemsetD32Async_ptsz) \
  X(cuMemsetD16_v2) \
  X(cuMemsetD16_v2_ptds) \
  X(cuMemsetD16Async) \
  X(cuMemsetD16Async_ptsz) \
  X(cuMemsetD2D8_v2) \
  X(cuMemsetD2D8_v2_ptds) \
  X(cuMemsetD2D16_v2) \
  X(cuMemsetD2D16_v2_ptds) \
  X(cuMemsetD2D32_v2) \
  X(cuMemsetD2D32_v2_ptds) \
  X(cuMemsetD2D8Async) \
  X(cuMemsetD2D8Async_ptsz) \
  X(cuMemsetD2D16Async) \
  X(cuMemsetD2D16Async_ptsz) \
  X(cuMemsetD2D32Async) \
  X(cuMemsetD2D32Async_ptsz) \
  /* Words that streams write and wait for */ \
  X(cuStreamWriteValue32) \
  X(cuStreamWriteValue32_ptsz) \
  X(cuStreamWriteValue32_v2) \
  X(cuStreamWriteValue32_v2_ptsz) \
  X(cuStreamWriteValue64) \
  X(cuStreamWriteValue64_ptsz) \
  X(cuStreamWriteValue64_v2) \
  X(cuStreamWriteValue64_v2_ptsz) \
  X(cuStreamWaitValue32) \
  X(cuStreamWaitValue32_ptsz) \
  X(cuStreamWaitValue32_v2) \
  X(cuStreamWaitValue32_v2_ptsz) \
  X(cuStreamWaitValue64) \
  X(cuStreamWaitValue64_ptsz) \
  X(cuStreamWaitValue64_v2) \
  X(cuStreamWaitValue64_v2_ptsz) \
  X(cuStreamBatchMemOp) \
  X(cuStreamBatchMemOp_ptsz) \
  X(cuStreamBatchMemOp_v2) \
  X(cuStreamBatchMemOp_v2_ptsz) \
  /* Captures, which an eviction would break, and what ends them */ \
  X(cuStreamBeginCapture) \
  X(cuStreamBeginCapture_ptsz) \
  X(cuStreamBeginCapture_v2) \
  X(cuStreamBeginCapture_v2_ptsz) \
  X(cuStreamBeginCaptureToGraph) \
  X(cuStreamBeginCaptureToGraph_ptsz) \
  X(cuStreamEndCapture) \
  X(cuStreamEndCapture_ptsz) \
  X(cuStreamDestroy_v2) \
  /* Managed memory that moves to the device */ \
  X(cuMemPrefetchAsync) \
  X(cuMemPrefetchAsync_ptsz) \
  X(cuMemPrefetchAsync_v2) \
  X(cuMemPrefetchAsync_v2_ptsz) \
  X(cuMemPrefetchBatchAsync) \
  X(cuMemPrefetchBatchAsync_ptsz) \
  X(cuMemDiscardBatchAsync) \
  X(cuMemDiscardBatchAsync_ptsz) \
  X(cuMemDiscardAndPrefetchBatchAsync) \
  X(cuMemDiscardAndPrefetchBatchAsync_ptsz)
// clang-format on

#endif  // SHIM_GATE_GATED_CALLS_H_

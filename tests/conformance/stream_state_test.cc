// Properties of streams and contexts; words that streams write and wait for.

#include <gtest/gtest.h>

#include <atomic>

#include "tests/conformance/gate.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

CONFORMANCE_TEST(StreamState, CreationIsRemembered) {
  const Session gpu;
  int least = 0, greatest = 0;
  ASSERT_EQ(Cuda().cuCtxGetStreamPriorityRange(&least, &greatest),
            CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(Cuda().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING,
                                              greatest),
            CUDA_SUCCESS);
  int priority = 77;
  unsigned flags = 77;
  CUcontext context = nullptr;
  EXPECT_EQ(Cuda().cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamGetCtx(stream, &context), CUDA_SUCCESS);
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(flags, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(context, gpu.context());
}

CONFORMANCE_TEST(StreamState, PriorityOutOfRangeIsClamped) {
  const Session gpu;
  int least = 0, greatest = 0, priority = 77;
  ASSERT_EQ(Cuda().cuCtxGetStreamPriorityRange(&least, &greatest),
            CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(Cuda().cuStreamCreateWithPriority(&stream, 0, greatest - 100),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, greatest);
}

CONFORMANCE_TEST(StreamState, IdsDiffer) {
  const Session gpu;
  unsigned long long first = 0, second = 0;
  ASSERT_EQ(Cuda().cuStreamGetId(NewStream(), &first), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamGetId(NewStream(), &second), CUDA_SUCCESS);
  EXPECT_NE(first, second);
}

CONFORMANCE_TEST(StreamState, NoStreamCapturesUnasked) {
  const Session gpu;
  const CUstream stream = NewStream();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  ASSERT_EQ(Cuda().cuStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr,
                                             nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  CUgraph graph = nullptr;
  EXPECT_EQ(Cuda().cuStreamEndCapture(stream, &graph),
            CUDA_ERROR_ILLEGAL_STATE);
}

CONFORMANCE_TEST(StreamState, CaptureModeIsExchanged) {
  const Session gpu;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(Cuda().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  ASSERT_EQ(Cuda().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

CONFORMANCE_TEST(StreamState, CallbackRunsInOrderAndHearsOfSuccess) {
  const Session gpu;
  const CUstream stream = NewStream();
  static std::atomic<unsigned> reported{77};
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  ASSERT_EQ(
      Cuda().cuStreamAddCallback(
          stream, [](CUstream, CUresult status, void*) { reported = status; },
          nullptr, 0),
      CUDA_SUCCESS);
  EXPECT_EQ(reported, 77u);
  gate.Open();
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(reported, CUDA_SUCCESS);
}

CONFORMANCE_TEST(StreamValue, OneStreamWaitsForAnothersWord) {
  const Session gpu;
  const CUdeviceptr flag = gpu.NewMapping(gpu.granularity());
  gpu.Write(flag, 0);
  gpu.Write(flag + 4, 0);
  const CUstream waiter = NewStream(), writer = NewStream();
  ASSERT_EQ(
      Cuda().cuStreamWaitValue32_v2(waiter, flag, 5, CU_STREAM_WAIT_VALUE_GEQ),
      CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32Async(flag + 4, 9, 1, waiter), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamQuery(waiter), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(Cuda().cuStreamWriteValue32_v2(writer, flag, 6, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(waiter), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(flag + 4), 9u);
}

CONFORMANCE_TEST(StreamValue, BatchRunsInItsOrder) {
  const Session gpu;
  const CUdeviceptr flag = gpu.NewMapping(gpu.granularity());
  gpu.Write(flag, 0);
  gpu.Write(flag + 4, 0);
  CUstreamBatchMemOpParams batch[2] = {};
  batch[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  batch[0].waitValue.address = flag;
  batch[0].waitValue.value = 5;
  batch[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  batch[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[1].writeValue.address = flag + 4;
  batch[1].writeValue.value = 9;
  const CUstream stream = NewStream();
  ASSERT_EQ(Cuda().cuStreamBatchMemOp_v2(stream, 2, batch, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(gpu.Read(flag + 4), 0u);
  ASSERT_EQ(Cuda().cuStreamWriteValue32_v2(NewStream(), flag, 5, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(flag + 4), 9u);
  EXPECT_EQ(Cuda().cuStreamBatchMemOp_v2(stream, 256, batch, 0),
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(StreamValue, UnalignedAddressIsRefused) {
  const Session gpu;
  const CUdeviceptr flag = gpu.NewMapping(gpu.granularity());
  EXPECT_EQ(Cuda().cuStreamWriteValue32_v2(NewStream(), flag + 1, 1, 0),
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Settings, LimitsAreRemembered) {
  const Session gpu;
  ASSERT_EQ(Cuda().cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  size_t bytes = 0;
  ASSERT_EQ(Cuda().cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 4096u);
}

CONFORMANCE_TEST(Settings, DeviceIsFoundByItsBusId) {
  const Session gpu;
  char text[32];
  ASSERT_EQ(Cuda().cuDeviceGetPCIBusId(text, sizeof(text), 0), CUDA_SUCCESS);
  CUdevice device = 77;
  EXPECT_EQ(Cuda().cuDeviceGetByPCIBusId(&device, text), CUDA_SUCCESS);
  EXPECT_EQ(device, 0);
  EXPECT_NE(Cuda().cuDeviceGetByPCIBusId(&device, "0000:ff:1f.0"),
            CUDA_SUCCESS);
}

CONFORMANCE_TEST(Settings, DeviceIsNoPeerOfItself) {
  const Session gpu;
  int can = 77;
  ASSERT_EQ(Cuda().cuDeviceCanAccessPeer(&can, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
}

}  // namespace
}  // namespace fineserve::conformance

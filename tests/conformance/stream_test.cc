// Streams run concurrently with the host; events and the default stream order
// them. A gate (a host function that waits) decides what has happened, so that
// no test depends on time.

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>

#include "tests/conformance/gate.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

CUevent NewEvent() {
  CUevent event = nullptr;
  EXPECT_EQ(Cuda().cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  return event;
}

CUevent Recorded(CUstream stream) {
  const CUevent event = NewEvent();
  EXPECT_EQ(Cuda().cuEventRecord(event, stream), CUDA_SUCCESS);
  return event;
}

// Returns a word that the host reads without the device. A copy from the device
// would wait, and so prove nothing about what has happened so far.
uint32_t* PinnedWord() {
  void* host = nullptr;
  EXPECT_EQ(Cuda().cuMemAllocHost_v2(&host, sizeof(uint32_t)), CUDA_SUCCESS);
  *static_cast<uint32_t*>(host) = 0;
  return static_cast<uint32_t*>(host);
}

// Gives work that should be held back every chance to run, so that a test does
// not pass only because a thread was slow to start. Never fails by itself. It
// uses no host functions, because a driver may run them one after the other,
// behind our gate's host function.
void GiveOthersAChance() {
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(Cuda().cuEventSynchronize(Recorded(stream)), CUDA_SUCCESS);
    sched_yield();
  }
}

CONFORMANCE_TEST(Stream, WorkIsPendingUntilItsPredecessorsAreDone) {
  const Session gpu;
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr address = gpu.NewMapping(gpu.granularity());
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32Async(address, 5, 1, stream), CUDA_SUCCESS);
  const CUevent event = Recorded(stream);
  GiveOthersAChance();
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  gate.Open();
  EXPECT_EQ(Cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(address), 5u);
}

CONFORMANCE_TEST(Stream, StreamsDoNotWaitForEachOther) {
  const Session gpu;
  const CUstream held = NewStream(CU_STREAM_NON_BLOCKING);
  const CUstream other = NewStream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr address = gpu.NewMapping(gpu.granularity());
  Gate gate;
  ASSERT_EQ(gate.Block(held), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32Async(address, 6, 1, other), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamQuery(held), CUDA_ERROR_NOT_READY);
}

CONFORMANCE_TEST(Stream, StreamWaitsForAnEventOfAnother) {
  const Session gpu;
  const CUstream first = NewStream(CU_STREAM_NON_BLOCKING);
  const CUstream second = NewStream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr address = gpu.NewMapping(gpu.granularity());
  Gate gate;
  ASSERT_EQ(gate.Block(first), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32Async(address, 7, 1, first), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamWaitEvent(second, Recorded(first), 0), CUDA_SUCCESS);
  uint32_t* const seen = PinnedWord();
  ASSERT_EQ(Cuda().cuMemcpyDtoHAsync_v2(seen, address, 4, second),
            CUDA_SUCCESS);
  GiveOthersAChance();
  EXPECT_EQ(Cuda().cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  gate.Open();
  ASSERT_EQ(Cuda().cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(*seen, 7u);
}

CONFORMANCE_TEST(Stream, WaitNamesTheRecordingOfItsMoment) {
  const Session gpu;
  const CUstream first = NewStream(CU_STREAM_NON_BLOCKING);
  const CUstream second = NewStream(CU_STREAM_NON_BLOCKING);
  const CUevent event = Recorded(first);
  ASSERT_EQ(Cuda().cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  Gate gate;
  ASSERT_EQ(gate.Block(first), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventRecord(event, first), CUDA_SUCCESS);  // too late
  EXPECT_EQ(Cuda().cuStreamSynchronize(second), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Stream, NeverRecordedEventIsComplete) {
  const Session gpu;
  const CUevent event = NewEvent();
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamWaitEvent(NewStream(0), event, 0), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Stream, DefaultStreamWaitsForBlockingStreams) {
  const Session gpu;
  const CUstream stream = NewStream(CU_STREAM_DEFAULT);
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  const CUevent event = Recorded(nullptr);
  GiveOthersAChance();
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.Open();
  EXPECT_EQ(Cuda().cuEventSynchronize(event), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Stream, BlockingStreamsWaitForTheDefaultStream) {
  const Session gpu;
  const CUstream stream = NewStream(CU_STREAM_DEFAULT);
  Gate gate;
  ASSERT_EQ(gate.Block(nullptr), CUDA_SUCCESS);
  const CUevent event = Recorded(stream);
  GiveOthersAChance();
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.Open();
  EXPECT_EQ(Cuda().cuEventSynchronize(event), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Stream, NonBlockingStreamsIgnoreTheDefaultStream) {
  const Session gpu;
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  gate.Open();
  Gate other;
  ASSERT_EQ(other.Block(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Stream, DestroyedStreamFinishesItsWork) {
  const Session gpu;
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr address = gpu.NewMapping(gpu.granularity());
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32Async(address, 8, 1, stream), CUDA_SUCCESS);
  const CUevent event = Recorded(stream);
  ASSERT_EQ(Cuda().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  gate.Open();
  EXPECT_EQ(Cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(address), 8u);
}

CONFORMANCE_TEST(Stream, ContextSynchronizeWaitsForAllStreams) {
  const Session gpu;
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  static std::atomic<bool> ran{false};
  ASSERT_EQ(Cuda().cuLaunchHostFunc(
                stream, [](void*) { ran = true; }, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_TRUE(ran);
}

CONFORMANCE_TEST(Stream, ElapsedTimeNeedsBothRecordings) {
  const Session gpu;
  const CUevent start = Recorded(nullptr);
  const CUevent end = NewEvent();
  float milliseconds = -1;
  EXPECT_EQ(Cuda().cuEventElapsedTime(&milliseconds, start, end),
            CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(Cuda().cuEventRecord(end, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventSynchronize(end), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 0);
}

}  // namespace
}  // namespace fineserve::conformance

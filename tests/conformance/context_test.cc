// Contexts: which calls need one, how threads hold them, and how they end.

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "tests/conformance/gate.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

CONFORMANCE_TEST(Context, NothingWorksBeforeInit) {
  int count = 0;
  CUdevice device = 0;
  EXPECT_EQ(Cuda().cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(Cuda().cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
}

CONFORMANCE_TEST(Context, AllocationsAndStreamsNeedOne) {
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  CUstream stream = nullptr;
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&address, 16), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Cuda().cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

CONFORMANCE_TEST(Context, EachThreadHasItsOwnCurrentContext) {
  const Session gpu;
  std::thread([&gpu] {
    CUcontext current = gpu.context();
    EXPECT_EQ(Cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, nullptr);
    EXPECT_EQ(Cuda().cuCtxSetCurrent(gpu.context()), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  }).join();
}

CONFORMANCE_TEST(Context, PushAndPopNest) {
  const Session gpu;
  CUcontext second = nullptr, popped = nullptr, current = nullptr;
  ASSERT_EQ(Cuda().cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, second);
  EXPECT_EQ(Cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, gpu.context());
  EXPECT_EQ(Cuda().cuCtxDestroy_v2(second), CUDA_SUCCESS);
}

// CUDA C++ Programming Guide, "Stream and Event Behavior".
CONFORMANCE_TEST(Context, StreamsAndEventsOfAnotherMixOnlyWhereCudaSaysSo) {
  const Session gpu;
  CUevent first_event = nullptr, second_event = nullptr;
  CUstream first_stream = nullptr, second_stream = nullptr;
  CUcontext second = nullptr;
  const CUdeviceptr memory = gpu.NewMapping(gpu.granularity());
  ASSERT_EQ(Cuda().cuEventCreate(&first_event, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamCreate(&first_stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventRecord(first_event, first_stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventCreate(&second_event, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamCreate(&second_stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventRecord(second_event, second_stream), CUDA_SUCCESS);

  EXPECT_EQ(Cuda().cuEventRecord(first_event, second_stream),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cuda().cuEventRecord(second_event, first_stream),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cuda().cuEventRecord(first_event, nullptr),
            CUDA_ERROR_INVALID_HANDLE)
      << "the current context's default stream";
  EXPECT_EQ(Cuda().cuEventRecord(first_event, first_stream), CUDA_SUCCESS)
      << "the current context does not matter";
  EXPECT_EQ(Cuda().cuStreamWaitEvent(second_stream, first_event, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventSynchronize(first_event), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventQuery(first_event), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventSynchronize(second_event), CUDA_SUCCESS);
  float milliseconds = 0;
  EXPECT_EQ(Cuda().cuEventElapsedTime(&milliseconds, first_event, second_event),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(
      Cuda().cuMemcpyDtoDAsync_v2(memory, memory + 4096, 16, first_stream),
      CUDA_SUCCESS)
      << "copies may go anywhere";
  EXPECT_EQ(Cuda().cuStreamSynchronize(first_stream), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Context, TakesMemoryForAsLongAsItLives) {
  const Session gpu;
  const uint64_t before = gpu.FreeBytes();
  CUcontext second = nullptr;
  ASSERT_EQ(Cuda().cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
  EXPECT_LT(gpu.FreeBytes(), before);
  ASSERT_EQ(Cuda().cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(gpu.FreeBytes(), before);
}

// Programs that were compiled with CUDA 11.4, or with 12.5 or newer, call these
// functions.
CONFORMANCE_TEST(Context, LaterFormsOfCreateTakeNoParameters) {
  const Session gpu;
  CUcontext created = nullptr, current = nullptr;
  if (Cuda().cuCtxCreate_v3 != nullptr) {
    ASSERT_EQ(Cuda().cuCtxCreate_v3(&created, nullptr, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, created);
    EXPECT_EQ(Cuda().cuCtxDestroy_v2(created), CUDA_SUCCESS);
  }
  if (Cuda().cuCtxCreate_v4 == nullptr) {
    GTEST_SKIP() << "this driver is older than CUDA 12.5";
  }
  ASSERT_EQ(Cuda().cuCtxCreate_v4(&created, nullptr, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, created);
  EXPECT_EQ(Cuda().cuCtxDestroy_v2(created), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Context, PrimaryContextIsOnePerDevice) {
  const Session gpu;
  CUcontext again = nullptr;
  unsigned flags = 0;
  int active = 0;
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
  EXPECT_EQ(again, gpu.context());
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxGetState(0, &flags, &active),
            CUDA_SUCCESS);
  EXPECT_EQ(active, 1);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxGetState(0, &flags, &active),
            CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
}

CONFORMANCE_TEST(Context, ResetGivesItsAllocationsBack) {
  const Session gpu;
  const uint64_t before = gpu.FreeBytes();
  CUdeviceptr address = 0;
  ASSERT_EQ(Cuda().cuMemAlloc_v2(&address, 256 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  const Session second;
  EXPECT_GT(second.FreeBytes() + 256 * kMiB, before);
}

CONFORMANCE_TEST(Context, DestroyWaitsForItsStreams) {
  const Session gpu;
  CUcontext second = nullptr;
  CUstream stream = nullptr;
  static bool ran = false;  // the wait under test orders both accesses
  ASSERT_EQ(Cuda().cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
            CUDA_SUCCESS);
  // Slow enough that a destruction which does not wait would finish first.
  const CUhostFn note_slowly = [](void*) {
    for (int i = 0; i < 10'000; ++i) sched_yield();
    ran = true;
  };
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuLaunchHostFunc(stream, note_slowly, nullptr),
            CUDA_SUCCESS);
  std::thread opener([&gate] { gate.Open(); });
  EXPECT_EQ(Cuda().cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_TRUE(ran);
  opener.join();
}

// The address is reserved, but no memory is mapped there.
CUdeviceptr BadAddress(const Session& gpu) {
  return gpu.Reserve(gpu.granularity());
}

CONFORMANCE_TEST(Context, IllegalAddressIsReportedAndStays) {
  const Session gpu;
  const CUdeviceptr good = gpu.NewMapping(gpu.granularity());
  if (Cuda().cuMemsetD8Async(BadAddress(gpu), 1, 4096, nullptr) !=
      CUDA_SUCCESS) {
    EMULATED_ONLY("whether a bad address is refused at the call");
  }
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  uint32_t word = 0;
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(&word, good, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Cuda().cuMemsetD8_v2(good, 0, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
}

CONFORMANCE_TEST(Context, MappingWithoutAccessIsAnIllegalAddress) {
  const Session gpu;
  const uint64_t unit = gpu.granularity();
  const CUdeviceptr address = gpu.Reserve(unit);
  ASSERT_EQ(Cuda().cuMemMap(address, unit, 0, gpu.Create(unit), 0),
            CUDA_SUCCESS);
  if (Cuda().cuMemsetD8Async(address, 1, 4096, nullptr) != CUDA_SUCCESS) {
    EMULATED_ONLY("whether a bad address is refused at the call");
  }
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

CONFORMANCE_TEST(Context, AddressThatWasNeverGivenOutIsRefusedAtOnce) {
  EMULATED_ONLY("how an address that no driver gave out is treated");
  const Session gpu;
  uint32_t word = 0;
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(&word, 0x1000, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace fineserve::conformance

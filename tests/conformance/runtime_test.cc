// A CUDA runtime on the driver under test, through its public API.

#include "tests/conformance/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tools/lab/device/cudart/unsupported_list.h"

namespace fineserve::conformance {
namespace {

using ::testing::AnyOf;
using ::testing::Each;

void* Allocate(size_t bytes) {
  void* address = nullptr;
  EXPECT_EQ(Runtime().cudaMalloc(&address, bytes), cudaSuccess);
  return address;
}

std::vector<char> ReadBack(const void* from, size_t bytes) {
  std::vector<char> to(bytes);
  EXPECT_EQ(
      Runtime().cudaMemcpy(to.data(), from, bytes, cudaMemcpyDeviceToHost),
      cudaSuccess);
  return to;
}

CONFORMANCE_TEST(Runtime, PropertiesAreTheDrivers) {
  const Session gpu;
  int count = 0, version = 0;
  EXPECT_EQ(Runtime().cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_GE(count, 1);
  EXPECT_EQ(Runtime().cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_GE(version, 13000);
  cudaDeviceProp prop;
  ASSERT_EQ(Runtime().cudaGetDeviceProperties(&prop, 0), cudaSuccess);
  char name[256];
  ASSERT_EQ(Cuda().cuDeviceGetName(name, sizeof(name), 0), CUDA_SUCCESS);
  EXPECT_STREQ(prop.name, name);
  EXPECT_EQ(prop.totalGlobalMem, gpu.TotalBytes());
  EXPECT_EQ(prop.warpSize, 32);
  EXPECT_GT(prop.multiProcessorCount, 0);
}

CONFORMANCE_TEST(Runtime, DeviceThatIsNotThereIsInvalid) {
  cudaDeviceProp prop;
  EXPECT_EQ(Runtime().cudaSetDevice(99), cudaErrorInvalidDevice);
  EXPECT_EQ(Runtime().cudaGetDeviceProperties(&prop, -1),
            cudaErrorInvalidDevice);
  int device = -1;
  EXPECT_EQ(Runtime().cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 0);
}

CONFORMANCE_TEST(Runtime, BytesComeBackAsTheyWentIn) {
  char* const memory = static_cast<char*>(Allocate(kMiB));
  std::vector<char> bytes(kMiB);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  EXPECT_EQ(Runtime().cudaMemcpy(memory, bytes.data(), bytes.size(),
                                 cudaMemcpyHostToDevice),
            cudaSuccess);
  EXPECT_EQ(ReadBack(memory, bytes.size()), bytes);
  // With cudaMemcpyDefault, the addresses alone determine the direction.
  EXPECT_EQ(Runtime().cudaMemcpy(memory + 100, memory, 50, cudaMemcpyDefault),
            cudaSuccess);
  EXPECT_EQ(ReadBack(memory + 100, 50), ReadBack(memory, 50));
  EXPECT_EQ(Runtime().cudaMemset(memory, 3, 10), cudaSuccess);
  EXPECT_THAT(ReadBack(memory, 10), Each(3));
  EXPECT_EQ(Runtime().cudaFree(memory), cudaSuccess);
}

CONFORMANCE_TEST(Runtime, RowsOfTwoPitchesAreCopiedOneByOne) {
  char* const memory = static_cast<char*>(Allocate(64));
  ASSERT_EQ(Runtime().cudaMemset(memory, 0, 64), cudaSuccess);
  const std::string rows = "ab..cd..ef..";
  ASSERT_EQ(Runtime().cudaMemcpy2D(memory, 8, rows.data(), 4, 2, 3,
                                   cudaMemcpyHostToDevice),
            cudaSuccess);
  const std::vector<char> read = ReadBack(memory, 24);
  EXPECT_EQ(std::string(read.data(), 2) + std::string(&read[8], 2) +
                std::string(&read[16], 3),
            std::string("abcdef") + '\0');
  EXPECT_EQ(Runtime().cudaMemcpy2D(memory, 1, rows.data(), 4, 2, 3,
                                   cudaMemcpyHostToDevice),
            cudaErrorInvalidPitchValue);
}

CONFORMANCE_TEST(Runtime, NothingIsAllocatedForNoBytes) {
  void* address = &address;
  EXPECT_EQ(Runtime().cudaMalloc(&address, 0), cudaSuccess);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(Runtime().cudaFree(nullptr), cudaSuccess);
}

CONFORMANCE_TEST(Runtime, ExhaustedDeviceIsOutOfMemoryAndNotForGood) {
  size_t free_bytes = 0, total_bytes = 0;
  ASSERT_EQ(Runtime().cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  void* address = nullptr;
  EXPECT_EQ(Runtime().cudaMalloc(&address, 2 * total_bytes),
            cudaErrorMemoryAllocation);
  EXPECT_EQ(Runtime().cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_NE(Allocate(kMiB), nullptr);
}

CONFORMANCE_TEST(Runtime, LastErrorIsTheThreadsOwnUntilItIsTaken) {
  EXPECT_EQ(Runtime().cudaSetDevice(99), cudaErrorInvalidDevice);
  std::thread other([] {
    EXPECT_EQ(Runtime().cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(Runtime().cudaFree(reinterpret_cast<void*>(1)),
              cudaErrorInvalidValue);
  });
  other.join();
  EXPECT_EQ(Runtime().cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(Runtime().cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(Runtime().cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(Runtime().cudaGetLastError(), cudaSuccess);
}

CONFORMANCE_TEST(Runtime, IllegalAddressEndsTheContextForGood) {
  EMULATED_ONLY("whether a bad address is refused at the call");
  const Session gpu;
  const CUdeviceptr reserved = gpu.Reserve(gpu.granularity());
  EXPECT_EQ(Runtime().cudaMemset(reinterpret_cast<void*>(reserved), 1, 16),
            cudaSuccess);
  EXPECT_EQ(Runtime().cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_EQ(Runtime().cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(Runtime().cudaGetLastError(), cudaErrorIllegalAddress);
  void* address = nullptr;
  EXPECT_EQ(Runtime().cudaMalloc(&address, kMiB), cudaErrorIllegalAddress);
}

CONFORMANCE_TEST(Runtime, WorksInThePrimaryContextThatTheDriverSees) {
  ASSERT_EQ(Runtime().cudaSetDevice(0), cudaSuccess);
  CUcontext primary = nullptr, current = nullptr;
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, primary);
  // Memory that one API allocates can be used by the other API.
  void* const memory = Allocate(kMiB);
  EXPECT_EQ(Cuda().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(memory)),
            CUDA_SUCCESS);
}

CONFORMANCE_TEST(Runtime, ContextMadeCurrentByTheProgramIsUsed) {
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  CUcontext own = nullptr, current = nullptr;
  ASSERT_EQ(Cuda().cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
  EXPECT_NE(Allocate(kMiB), nullptr);
  ASSERT_EQ(Cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, own);
}

CONFORMANCE_TEST(Runtime, ThreadsThatRaceForTheFirstCallShareOneContext) {
  constexpr size_t kThreads = 8;
  std::array<CUcontext, kThreads> contexts{};
  std::vector<std::thread> threads;
  Runtime();
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&contexts, i] {
      EXPECT_NE(Allocate(4096), nullptr);
      EXPECT_EQ(Cuda().cuCtxGetCurrent(&contexts[i]), CUDA_SUCCESS);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(contexts[0], nullptr);
  EXPECT_THAT(contexts, Each(contexts[0]));
}

CONFORMANCE_TEST(Runtime, ForkedChildCannotUseTheDevice) {
  Allocate(kMiB);
  Peer peer([](Channel& channel) {
    void* address = nullptr;
    channel.Send(Runtime().cudaMalloc(&address, kMiB));
  });
  EXPECT_EQ(peer.channel().Receive(), cudaErrorInitializationError);
  peer.Join();
}

CONFORMANCE_TEST(Runtime, DriverOfAnOlderMajorVersionIsInsufficient) {
  EMULATED_ONLY("how a program could choose the driver's version");
  setenv("EMUCUDA_DRIVER_VERSION", "12090", 1);
  int count = -1;
  EXPECT_EQ(Runtime().cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 0);
  int version = 0;
  EXPECT_EQ(Runtime().cudaDriverGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, 12090);
}

CONFORMANCE_TEST(Runtime, DriverEntryPointsComeFromTheResolver) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status;
  EXPECT_EQ(Runtime().cudaGetDriverEntryPointByVersion("cuMemCreate", &function,
                                                       12000, 0, &status),
            cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  EXPECT_EQ(function, reinterpret_cast<void*>(Cuda().cuMemCreate));
  EXPECT_EQ(Runtime().cudaGetDriverEntryPointByVersion(
                "cuNoSuchThing", &function, 12000, 0, &status),
            cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(function, nullptr);
}

CONFORMANCE_TEST(Runtime, CallbackRunsOnceWithItsStream) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(Runtime().cudaStreamCreate(&stream), cudaSuccess);
  struct Seen {
    cudaStream_t stream = nullptr;
    int calls = 0;
  } seen;
  const auto callback = [](cudaStream_t s, cudaError_t status, void* out) {
    EXPECT_EQ(status, cudaSuccess);
    static_cast<Seen*>(out)->stream = s;
    ++static_cast<Seen*>(out)->calls;
  };
  ASSERT_EQ(Runtime().cudaStreamAddCallback(stream, callback, &seen, 0),
            cudaSuccess);
  ASSERT_EQ(Runtime().cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(seen.stream, stream);
  EXPECT_EQ(seen.calls, 1);
}

CONFORMANCE_TEST(Runtime, EventsTellOrder) {
  cudaEvent_t first = nullptr, last = nullptr;
  ASSERT_EQ(Runtime().cudaEventCreate(&first), cudaSuccess);
  ASSERT_EQ(Runtime().cudaEventCreate(&last), cudaSuccess);
  ASSERT_EQ(Runtime().cudaEventRecord(first, nullptr), cudaSuccess);
  ASSERT_EQ(Runtime().cudaEventRecord(last, nullptr), cudaSuccess);
  ASSERT_EQ(Runtime().cudaEventSynchronize(last), cudaSuccess);
  EXPECT_EQ(Runtime().cudaEventQuery(first), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(Runtime().cudaEventElapsedTime(&milliseconds, first, last),
            cudaSuccess);
  EXPECT_GE(milliseconds, 0);
}

CONFORMANCE_TEST(Runtime, CapturedFillRunsAtEachLaunch) {
  cudaStream_t stream = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(Runtime().cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(Runtime().cudaMalloc(&memory, 256), cudaSuccess);
  ASSERT_EQ(
      Runtime().cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
      cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(Runtime().cudaStreamIsCapturing(stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  unsigned long long id = 0;
  EXPECT_EQ(Runtime().cudaStreamGetCaptureInfo(stream, &status, &id, nullptr,
                                               nullptr, nullptr, nullptr),
            cudaSuccess);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(Runtime().cudaMemsetAsync(memory, 5, 256, stream), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(Runtime().cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(Runtime().cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int launch = 0; launch < 2; ++launch) {
    ASSERT_EQ(Runtime().cudaMemset(memory, 0, 256), cudaSuccess);
    EXPECT_EQ(Runtime().cudaGraphLaunch(exec, stream), cudaSuccess);
    EXPECT_EQ(Runtime().cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(ReadBack(memory, 256), std::vector<char>(256, 5));
  }
  EXPECT_EQ(Runtime().cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(Runtime().cudaGraphDestroy(graph), cudaSuccess);
}

CONFORMANCE_TEST(Runtime, AllocationEndsACaptureUnlessTheThreadIsRelaxed) {
  cudaStream_t stream = nullptr;
  void* memory = nullptr;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(Runtime().cudaStreamCreateWithFlags(&stream, 1), cudaSuccess);
  ASSERT_EQ(
      Runtime().cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
      cudaSuccess);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(Runtime().cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(Runtime().cudaMalloc(&memory, 256), cudaSuccess);
  EXPECT_EQ(Runtime().cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(Runtime().cudaMalloc(&memory, 256),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(Runtime().cudaStreamEndCapture(stream, &graph),
            cudaErrorStreamCaptureInvalidated);
}

CONFORMANCE_TEST(Runtime, NoStreamCapturesUnlessAskedTo) {
  cudaStreamCaptureStatus status{7};
  EXPECT_EQ(Runtime().cudaStreamIsCapturing(nullptr, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(Runtime().cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(Runtime().cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
}

CONFORMANCE_TEST(Runtime, UnregisteredFunctionIsNoKernel) {
  // CUDA 13.0 says the second.
  EXPECT_THAT(
      Runtime().cudaLaunchKernel(reinterpret_cast<void*>(&ReadBack), {1, 1, 1},
                                 {1, 1, 1}, nullptr, 0, nullptr),
      AnyOf(cudaErrorInvalidDeviceFunction, cudaErrorInvalidResourceHandle));
}

// The code that nvcc adds to a program for one kernel (crt/host_runtime.h).
class RegisteredKernel {
 public:
  RegisteredKernel(const char* name, const void* host_function) {
    binary_ =
        RuntimeFunction<void**(void*)>("__cudaRegisterFatBinary")(&wrapper_);
    RuntimeFunction<void(void**, const void*, char*, const char*, int, void*,
                         void*, void*, void*, int*)>("__cudaRegisterFunction")(
        binary_, host_function, nullptr, name, -1, nullptr, nullptr, nullptr,
        nullptr, nullptr);
    RuntimeFunction<void(void**)>("__cudaRegisterFatBinaryEnd")(binary_);
  }
  void Unregister() {
    RuntimeFunction<void(void**)>("__cudaUnregisterFatBinary")(binary_);
  }

 private:
  static constexpr std::array<uint32_t, 4> kImage = {0xba55ed50, 0x00100001, 0,
                                                     0};
  struct {
    int magic = 0x466243b1, version = 1;
    const void* image = kImage.data();
    const void* files = nullptr;
  } wrapper_;
  void** binary_ = nullptr;
};

CONFORMANCE_TEST(Runtime, RegisteredKernelIsLaunchedByItsHostFunction) {
  EMULATED_ONLY("what an image without code is");
  constexpr char kFill[] =
      "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIiEE"
      "St5arrayIPcLm1EELb0EEEviT0_T1_";
  const void* const stub = reinterpret_cast<void*>(&ReadBack);
  RegisteredKernel kernel(kFill, stub);
  void* memory = Allocate(kMiB);
  int count = 4, value = 0x05050505;
  void* arguments[] = {&count, &value, &memory};
  ASSERT_EQ(Runtime().cudaLaunchKernel(stub, {1, 1, 1}, {32, 1, 1}, arguments,
                                       0, nullptr),
            cudaSuccess);
  EXPECT_THAT(ReadBack(memory, 16), Each(5));
  const char* name = nullptr;
  EXPECT_EQ(Runtime().cudaFuncGetName(&name, stub), cudaSuccess);
  EXPECT_STREQ(name, kFill);
  kernel.Unregister();
  EXPECT_EQ(Runtime().cudaLaunchKernel(stub, {1, 1, 1}, {32, 1, 1}, arguments,
                                       0, nullptr),
            cudaErrorInvalidDeviceFunction);
}

// The host stubs of nvcc 13 pass the configuration of <<<...>>> on a stack.
CONFORMANCE_TEST(Runtime, CallConfigurationsNest) {
  const auto push = RuntimeFunction<unsigned(dim3, dim3, size_t, cudaStream_t)>(
      "__cudaPushCallConfiguration");
  const auto pop = RuntimeFunction<cudaError_t(dim3*, dim3*, size_t*, void*)>(
      "__cudaPopCallConfiguration");
  EXPECT_EQ(push({1, 2, 3}, {4, 5, 6}, 7, nullptr), 0u);
  EXPECT_EQ(push({8, 1, 1}, {1, 1, 1}, 0, nullptr), 0u);
  dim3 grid, block;
  size_t shared_bytes = 1;
  cudaStream_t stream;
  EXPECT_EQ(pop(&grid, &block, &shared_bytes, &stream), cudaSuccess);
  EXPECT_EQ(grid.x, 8u);
  EXPECT_EQ(pop(&grid, &block, &shared_bytes, &stream), cudaSuccess);
  EXPECT_EQ(grid.z, 3u);
  EXPECT_EQ(block.y, 5u);
  EXPECT_EQ(shared_bytes, 7u);
  EXPECT_EQ(pop(&grid, &block, &shared_bytes, &stream),
            cudaErrorMissingConfiguration);
}

TEST(Runtime, FunctionThatIsNotEmulatedIsThereAndSaysSo) {
  if (getenv("FINESERVE_LIBCUDART") != nullptr) {
    GTEST_SKIP() << "a real runtime";
  }
#define FINESERVE_IS_THERE(name) FindInRuntime(#name);
  EMUCUDA_UNSUPPORTED_RUNTIME_API(FINESERVE_IS_THERE)
#undef FINESERVE_IS_THERE
  const auto unsupported =
      RuntimeFunction<cudaError_t()>("cudaGraphAddHostNode");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(unsupported(), cudaErrorNotSupported);
  EXPECT_EQ(unsupported(), cudaErrorNotSupported);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "emucuda: the emulated CUDA runtime has no cudaGraphAddHostNode; "
            "it returns cudaErrorNotSupported\n");
}

TEST(Runtime, PrivateTablesAreRefused) {
  if (getenv("FINESERVE_LIBCUDART") != nullptr) {
    GTEST_SKIP() << "a real runtime";
  }
  const void* table = &table;
  const CUuuid id{};
  EXPECT_EQ(Runtime().cudaGetExportTable(&table, &id), cudaErrorNotSupported);
  EXPECT_EQ(table, nullptr);
}

}  // namespace
}  // namespace fineserve::conformance

// Libraries and kernels on the emulated device: what runs, what is skipped.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/conformance/gate.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tools/lab/device/emucuda.h"

namespace fineserve::conformance {
namespace {

// A fat binary's magic (fatbinary.h) with nothing after it.
constexpr std::array<uint32_t, 4> kFatBinary = {0xba55ed50, 0x00100001, 0, 0};

// PyTorch's fill of float, unsigned char and c10::complex<double> tensors.
constexpr char kFillFloat[] =
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEE"
    "St5arrayIPcLm1EELb0EEEviT0_T1_";
constexpr char kFillByte[] =
    "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_11FillFunctorIhEE"
    "St5arrayIPcLm1EELb0EEEviT0_T1_";
constexpr char kFillComplex[] =
    "_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_11FillFunctorIN3c107"
    "complexIdEEEESt5arrayIPcLm1EELb0EEEviT0_T1_";
constexpr char kUnknown[] = "_Z4gemmPfPKfS1_i";

CUlibrary Load() {
  CUlibrary library = nullptr;
  EXPECT_EQ(Cuda().cuLibraryLoadData(&library, kFatBinary.data(), nullptr,
                                     nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  return library;
}

CUkernel Kernel(CUlibrary library, const char* name) {
  CUkernel kernel = nullptr;
  EXPECT_EQ(Cuda().cuLibraryGetKernel(&kernel, library, name), CUDA_SUCCESS);
  return kernel;
}

CUresult Launch(CUkernel kernel, void** arguments, CUstream stream = nullptr) {
  return Cuda().cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1,
                               128, 1, 1, 0, stream, arguments, nullptr);
}

template <typename T>
CUresult LaunchFill(CUkernel kernel, int count, T value, CUdeviceptr to,
                    CUstream stream = nullptr) {
  void* arguments[] = {&count, &value, &to};
  return Launch(kernel, arguments, stream);
}

template <typename T>
std::vector<T> ReadBack(CUdeviceptr from, size_t count) {
  std::vector<T> values(count);
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(values.data(), from, count * sizeof(T)),
            CUDA_SUCCESS);
  return values;
}

uint64_t Skipped() {
  return reinterpret_cast<decltype(&::emucuda_skipped_launches)>(
      dlsym(DriverLibrary(), "emucuda_skipped_launches"))();
}

CONFORMANCE_TEST(Kernel, FillWritesItsElementsAndNothingElse) {
  const Session gpu;
  const CUdeviceptr memory = gpu.NewMapping(gpu.granularity());
  const CUlibrary library = Load();
  ASSERT_EQ(LaunchFill(Kernel(library, kFillFloat), 8, 2.5f, memory),
            CUDA_SUCCESS);
  const CUdeviceptr inside = memory + 3 * sizeof(float);
  ASSERT_EQ(LaunchFill(Kernel(library, kFillFloat), 2, -1.0f, inside),
            CUDA_SUCCESS);
  EXPECT_EQ(
      ReadBack<float>(memory, 9),
      (std::vector<float>{2.5f, 2.5f, 2.5f, -1, -1, 2.5f, 2.5f, 2.5f, 0}));
}

CONFORMANCE_TEST(Kernel, FillKnowsItsElementByTheMangledName) {
  const Session gpu;
  const CUdeviceptr memory = gpu.NewMapping(gpu.granularity());
  const CUlibrary library = Load();
  ASSERT_EQ(LaunchFill(Kernel(library, kFillByte), 3, uint8_t{7}, memory),
            CUDA_SUCCESS);
  EXPECT_EQ(ReadBack<uint8_t>(memory, 4), (std::vector<uint8_t>{7, 7, 7, 0}));
  using Complex = std::array<double, 2>;
  ASSERT_EQ(
      LaunchFill(Kernel(library, kFillComplex), 2, Complex{1.5, -2}, memory),
      CUDA_SUCCESS);
  EXPECT_EQ(ReadBack<Complex>(memory, 3),
            (std::vector<Complex>{{1.5, -2}, {1.5, -2}, {0, 0}}));
}

CONFORMANCE_TEST(Kernel, FillLargerThanItsBufferRepeatsSeamlessly) {
  const Session gpu;
  const CUdeviceptr memory = gpu.NewMapping(2 * kMiB);
  using Complex = std::array<double, 2>;
  const int count = static_cast<int>(2 * kMiB / sizeof(Complex)) - 1;
  ASSERT_EQ(
      LaunchFill(Kernel(Load(), kFillComplex), count, Complex{3, 4}, memory),
      CUDA_SUCCESS);
  const auto values = ReadBack<Complex>(memory, static_cast<size_t>(count) + 1);
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(values[static_cast<size_t>(i)], (Complex{3, 4})) << i;
  }
  EXPECT_EQ(values.back(), (Complex{0, 0}));
}

CONFORMANCE_TEST(Kernel, ArgumentsAreThoseOfTheCallNotOfTheRun) {
  const Session gpu;
  const CUdeviceptr memory = gpu.NewMapping(gpu.granularity());
  const CUkernel kernel = Kernel(Load(), kFillFloat);
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  int count = 2;
  float value = 1;
  CUdeviceptr to = memory;
  void* arguments[] = {&count, &value, &to};
  ASSERT_EQ(Launch(kernel, arguments, stream), CUDA_SUCCESS);
  count = 0;
  value = 9;
  to = 0;
  gate.Open();
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(ReadBack<float>(memory, 3), (std::vector<float>{1, 1, 0}));
}

CONFORMANCE_TEST(Kernel, FillOfUnmappedMemoryKillsTheContext) {
  const Session gpu;
  const CUdeviceptr reserved = gpu.Reserve(gpu.granularity());
  ASSERT_EQ(LaunchFill(Kernel(Load(), kFillFloat), 4, 1.0f, reserved),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

CONFORMANCE_TEST(Kernel, StreamOfAnotherContextIsRefused) {
  const Session gpu;
  const CUlibrary library = Load();
  const CUkernel kernel = Kernel(library, kFillFloat);
  const CUdeviceptr memory = gpu.NewMapping(gpu.granularity());
  CUstream stream = nullptr;
  CUcontext second = nullptr;
  ASSERT_EQ(Cuda().cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(LaunchFill(kernel, 16, 1.0f, memory, stream),
            CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(Cuda().cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(LaunchFill(kernel, 16, 1.0f, memory, stream), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Kernel, UnknownKernelIsCountedAndSkipped) {
  const Session gpu;
  const CUkernel kernel = Kernel(Load(), kUnknown);
  EXPECT_EQ(Launch(kernel, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Launch(kernel, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Skipped(), 2u);
}

CONFORMANCE_TEST(Kernel, KernelDiesWithItsLibrary) {
  const Session gpu;
  const CUlibrary library = Load();
  const CUkernel kernel = Kernel(library, kUnknown);
  EXPECT_EQ(Kernel(library, kUnknown), kernel);
  EXPECT_EQ(Cuda().cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(Launch(kernel, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cuda().cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
}

CONFORMANCE_TEST(Kernel, LaunchWithoutThreadsOrWithTooManyIsRefused) {
  const Session gpu;
  const auto function = reinterpret_cast<CUfunction>(Kernel(Load(), kUnknown));
  const auto launch = [&](unsigned grid, unsigned block) {
    return Cuda().cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, nullptr,
                                 nullptr, nullptr);
  };
  EXPECT_EQ(launch(0, 32), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1024), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Kernel, OtherBytesAreNotLoaded) {
  const Session gpu;
  const std::array<uint32_t, 4> garbage = {0xdeadbeef, 1, 2, 3};
  CUlibrary library = nullptr;
  const auto load = [&](const void* code) {
    return Cuda().cuLibraryLoadData(&library, code, nullptr, nullptr, 0,
                                    nullptr, nullptr, 0);
  };
  EXPECT_EQ(load(garbage.data()), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(nullptr), CUDA_ERROR_INVALID_VALUE);
  const auto text = [](const char* ptx) {
    std::array<char, 64> padded = {};
    strncpy(padded.data(), ptx, padded.size() - 1);
    return padded;
  };
  EXPECT_EQ(load(text("// PTX\n/* of\nnvcc */ .version 8.0").data()),
            CUDA_SUCCESS);
  for (const char* no_ptx : {"", "// PTX", "/* never closed", " .target sm_80",
                             "/ .version 8.0", "version 8.0"}) {
    EXPECT_EQ(load(text(no_ptx).data()), CUDA_ERROR_INVALID_IMAGE) << no_ptx;
  }
}

CONFORMANCE_TEST(Kernel, BinaryImagesAreLoadedByTheirHeaders) {
  const Session gpu;
  CUlibrary library = nullptr;
  const auto load = [&](const void* code) {
    return Cuda().cuLibraryLoadData(&library, code, nullptr, nullptr, 0,
                                    nullptr, nullptr, 0);
  };
  std::array<unsigned char, 64> elf = {0x7f, 'E', 'L', 'F', 2};
  EXPECT_EQ(load(elf.data()), CUDA_ERROR_INVALID_IMAGE) << "for no machine";
  elf[18] = 190;  // e_machine of CUDA
  EXPECT_EQ(load(elf.data()), CUDA_SUCCESS);
  elf[4] = 1;
  EXPECT_EQ(load(elf.data()), CUDA_ERROR_INVALID_IMAGE) << "32 bits";
  constexpr std::array<uint32_t, 4> kNewer = {0xba55ed50, 0x00100002, 0, 0};
  EXPECT_EQ(load(kNewer.data()), CUDA_ERROR_INVALID_IMAGE);
  struct {
    uint32_t magic = 0x466243b1, version = 1;
    const void* code = nullptr;
  } wrapper;
  EXPECT_EQ(load(&wrapper), CUDA_ERROR_INVALID_IMAGE) << "of nothing";
  wrapper.code = kFatBinary.data();
  EXPECT_EQ(load(&wrapper), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Kernel, AttributesAreRememberedPerKernel) {
  const Session gpu;
  const CUlibrary library = Load();
  const CUkernel kernel = Kernel(library, kUnknown);
  constexpr auto kDynamicSharedBytes = static_cast<CUfunction_attribute>(8);
  EXPECT_EQ(Cuda().cuKernelSetAttribute(kDynamicSharedBytes, 4096, kernel, 0),
            CUDA_SUCCESS);
  int value = 0;
  EXPECT_EQ(Cuda().cuKernelGetAttribute(&value, kDynamicSharedBytes, kernel, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 4096);
  EXPECT_EQ(Cuda().cuKernelGetAttribute(&value, kDynamicSharedBytes,
                                        Kernel(library, kFillFloat), 0),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(
      Cuda().cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, kernel, 0),
      CUDA_ERROR_INVALID_VALUE);
}

// PyTorch requires this of the driver, in addition to the virtual memory calls.
CONFORMANCE_TEST(Kernel, WordIsWrittenInStreamOrder) {
  const Session gpu;
  const CUdeviceptr memory = gpu.NewMapping(gpu.granularity());
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamWriteValue32_v2(stream, memory + 4, 77, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(ReadBack<uint32_t>(memory, 2), (std::vector<uint32_t>{0, 0}));
  gate.Open();
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(ReadBack<uint32_t>(memory, 2), (std::vector<uint32_t>{0, 77}));
}

CONFORMANCE_TEST(Kernel, RegisteredHostFunctionIsTheKernel) {
  const Session gpu;
  const CUdeviceptr memory = gpu.NewMapping(gpu.granularity());
  const size_t sizes[] = {sizeof(CUdeviceptr), sizeof(uint32_t)};
  const auto add = [](const void* const* arguments, void* user) {
    CUdeviceptr to;
    uint32_t value;
    memcpy(&to, arguments[0], sizeof(to));
    memcpy(&value, arguments[1], sizeof(value));
    *reinterpret_cast<uint32_t*>(to) += value;
    ++*static_cast<int*>(user);
  };
  static int launches = 0;
  const auto enroll = reinterpret_cast<decltype(&::emucuda_register_kernel)>(
      dlsym(DriverLibrary(), "emucuda_register_kernel"));
  ASSERT_EQ(enroll("_Z3addPjj", add, &launches, sizes, 2), 0);
  gpu.Write(memory, 40);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(Cuda().cuModuleLoadData(&module, kFatBinary.data()), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuModuleGetFunction(&function, module, "_Z3addPjj"),
            CUDA_SUCCESS);
  CUdeviceptr to = memory;
  uint32_t value = 2;
  void* arguments[] = {&to, &value};
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  ASSERT_EQ(Cuda().cuLaunchKernelEx(&config, function, arguments, nullptr),
            CUDA_SUCCESS);
  value = 1000;  // the launch has its own copy
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(memory), 42u);
  EXPECT_EQ(launches, 1);
  EXPECT_EQ(Cuda().cuModuleUnload(module), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Kernel, UnknownOnesAreRefusedIfSo) {
  setenv("EMUCUDA_UNKNOWN_KERNELS", "refuse", 1);
  const Session gpu;
  EXPECT_EQ(Launch(Kernel(Load(), kUnknown), nullptr),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Skipped(), 0u);
}

CONFORMANCE_TEST(Module, LoadingModeComesFromTheEnvironment) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  const Session gpu;
  CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
  ASSERT_EQ(Cuda().cuModuleGetLoadingMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_MODULE_EAGER_LOADING);
}

CONFORMANCE_TEST(Module, OtherBytesAreRefused) {
  const Session gpu;
  CUmodule module = nullptr;
  EXPECT_EQ(Cuda().cuModuleLoadData(&module, "no code"),
            CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(Cuda().cuModuleLoad(&module, "/no/such/file.cubin"),
            CUDA_ERROR_FILE_NOT_FOUND);
}

}  // namespace
}  // namespace fineserve::conformance

// Unwelcome behaviour that a driver is free to show, produced by the emulated
// driver's switches (design note 0019).

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>

#include "kernels/driver/descriptor.h"
#include "tests/conformance/control.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/nvml.h"
#include "tests/conformance/session.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/linger_helpers.h"

namespace fineserve::conformance {
namespace {

std::string MachineFolder() { return getenv("EMUCUDA_DIR"); }

// True if a process holds the lock that all processes of the machine share.
bool IsHeld() {
  const driver::Descriptor file(
      open((MachineFolder() + "/driver-lock").c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_len = 1;
  return fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// CUDA_ERROR_ECC_UNCORRECTABLE.
constexpr CUresult kEccUncorrectable = static_cast<CUresult>(214);

// The uncorrectable errors that NVML has counted.
unsigned long long Errors() {
  constexpr int kUncorrected = 1;
  constexpr int kSinceLoad = 0;
  void* device = nullptr;
  unsigned long long count = 0;
  EXPECT_EQ(Nvml<int()>("nvmlInit_v2")(), 0);
  EXPECT_EQ(
      Nvml<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2")(0, &device),
      0);
  EXPECT_EQ(Nvml<int(void*, int, int, unsigned long long*)>(
                "nvmlDeviceGetTotalEccErrors")(device, kUncorrected, kSinceLoad,
                                               &count),
            0);
  return count;
}

// True if another process waits for that lock.
bool IsAwaited() {
  struct stat file = {};
  if (stat((MachineFolder() + "/driver-lock").c_str(), &file) != 0) {
    return false;
  }
  const std::string inode = ":" + std::to_string(file.st_ino) + " ";
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    if (line.find("->") != std::string::npos &&
        line.find(inode) != std::string::npos) {
      return true;
    }
  }
  return false;
}

CONFORMANCE_TEST(UnkindDriver, DyingClientHoldsUpCallsOnEveryDevice) {
  setenv("EMUCUDA_DEVICES", "2", 1);
  setenv("EMUCUDA_TEARDOWN_US_PER_GIB", "3600000000", 1);
  auto* const torn_down =
      new (mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<bool>(false);
  Peer dying([](Channel& channel) {
    const Session gpu;
    gpu.NewMapping(1024 * kMiB);
    channel.Send(0);
    channel.Receive();
  });
  Peer other([torn_down](Channel& channel) {
    ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
    CUmemAllocationProp prop = DeviceMemoryProperties();
    prop.location.id = 1;
    channel.Send(0);
    channel.Receive();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(Cuda().cuMemCreate(&handle, 2 * kMiB, &prop, 0), CUDA_SUCCESS);
    EXPECT_TRUE(*torn_down);
  });
  dying.channel().Receive();
  other.channel().Receive();
  dying.Kill();
  ASSERT_TRUE(process::Eventually(IsHeld));
  other.channel().Send(0);
  EXPECT_TRUE(process::Eventually(IsAwaited));
  *torn_down = true;
  process::EndLingering(MachineFolder());
  other.Join();
}

CONFORMANCE_TEST(UnkindDriver, CallsOfAllProcessesHoldOneLock) {
  setenv("EMUCUDA_LOCK", "machine", 1);
  setenv("EMUCUDA_DEVICES", "2", 1);
  Peer other([](Channel& channel) {
    ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
    CUmemAllocationProp prop = DeviceMemoryProperties();
    prop.location.id = 1;
    channel.Send(0);
    channel.Receive();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(Cuda().cuMemCreate(&handle, 2 * kMiB, &prop, 0), CUDA_SUCCESS);
  });
  other.channel().Receive();
  // A call on device 0 holds this lock while it works.
  driver::Descriptor held(open((MachineFolder() + "/driver-lock").c_str(),
                               O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_len = 1;
  ASSERT_EQ(fcntl(held.get(), F_OFD_SETLK, &lock), 0);
  other.channel().Send(0);
  EXPECT_TRUE(process::Eventually(IsAwaited));
  held.Reset();
  other.Join();
}

CONFORMANCE_TEST(UnkindDriver, UnmappingWaitsForTheContextsWork) {
  setenv("EMUCUDA_UNMAP", "waits", 1);
  setenv("EMUCUDA_STREAM_DELAY_US", "20000", 1);
  const Session gpu;
  const CUstream stream = NewStream();
  const CUdeviceptr filled = gpu.NewMapping(2 * kMiB);
  const CUdeviceptr unmapped = gpu.NewMapping(2 * kMiB);
  const auto queue = [&] {
    EXPECT_EQ(Cuda().cuMemsetD8Async(filled, 1, 2 * kMiB, stream),
              CUDA_SUCCESS);
  };
  const CUmemAccessDesc access =
      DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  queue();
  EXPECT_EQ(Cuda().cuMemSetAccess(unmapped, 2 * kMiB, &access, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamQuery(stream), CUDA_SUCCESS);
  queue();
  EXPECT_EQ(Cuda().cuMemUnmap(unmapped, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamQuery(stream), CUDA_SUCCESS);
}

CONFORMANCE_TEST(UnkindDriver, ProcessesWithContextsAreLimited) {
  setenv("EMUCUDA_MOST_CONTEXTS", "1", 1);
  Peer first(HoldContext);
  first.channel().Receive();
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRetain(&context, 0),
            CUDA_ERROR_OUT_OF_MEMORY);
  first.Kill();
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
}

CONFORMANCE_TEST(UnkindDriver, ContextGrowsWithItsFirstKernel) {
  setenv("EMUCUDA_CONTEXT_MEMORY", "2MiB", 1);
  setenv("EMUCUDA_CONTEXT_GROWTH", "64MiB", 1);
  const Session gpu;
  const auto used_bytes = CONTROL(emucuda_used_bytes);
  EXPECT_EQ(used_bytes(0), 2 * kMiB);
  constexpr char kPtx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  ASSERT_EQ(Cuda().cuModuleLoadData(&module, kPtx), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuModuleGetFunction(&kernel, module, "gemm"), CUDA_SUCCESS);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Cuda().cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr,
                                    nullptr, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(used_bytes(0), 66 * kMiB);
  }
}

CONFORMANCE_TEST(UnkindDriver, LaterContextTakesMore) {
  setenv("EMUCUDA_CONTEXTS", "unequal", 1);
  Peer first(HoldContext);
  first.channel().Receive();
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  const auto used_bytes = CONTROL(emucuda_used_bytes);
  const uint64_t one = used_bytes(0);
  const Session gpu;
  EXPECT_EQ(used_bytes(0), 2 * one + 2 * kMiB);
}

// The process that wrote the bad page notices nothing, and the other pages of
// the memory stay readable.
CONFORMANCE_TEST(UnkindDriver, BadPageKillsTheContextsThatReadIt) {
  setenv("EMUCUDA_MEMORY", "64MiB", 1);
  setenv("EMUCUDA_CONTEXT_MEMORY", "0", 1);
  Peer reader([](Channel& channel) {
    const Session gpu;
    const CUdeviceptr address = gpu.Reserve(4 * kMiB);
    gpu.MapAt(address, 4 * kMiB, gpu.Import(channel.ReceiveDescriptor()));
    EXPECT_EQ(gpu.Read(address), 1u);
    uint32_t word = 0;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(&word, address + 2 * kMiB, 4),
                kEccUncorrectable);
    }
    EXPECT_EQ(Cuda().cuCtxSynchronize(), kEccUncorrectable);
  });
  const Session gpu;
  const CUmemGenericAllocationHandle memory = gpu.Create(4 * kMiB);
  const CUdeviceptr address = gpu.Reserve(4 * kMiB);
  gpu.MapAt(address, 4 * kMiB, memory);
  EXPECT_EQ(CONTROL(emucuda_spoil)(address + 3 * kMiB), 0);
  gpu.Write(address, 1);
  gpu.Write(address + 2 * kMiB, 1);
  EXPECT_EQ(Errors(), 0u);
  const driver::Descriptor fd(gpu.Export(memory));
  reader.channel().SendDescriptor(fd.get());
  reader.Join();
  EXPECT_EQ(Errors(), 1u);
  EXPECT_EQ(gpu.Read(address), 1u);
}

CONFORMANCE_TEST(UnkindDriver, BadPageIsNotAllocatedAgain) {
  setenv("EMUCUDA_MEMORY", "64MiB", 1);
  setenv("EMUCUDA_CONTEXT_MEMORY", "0", 1);
  const Session gpu;
  const auto memory = gpu.Create(4 * kMiB);
  const CUdeviceptr address = gpu.Reserve(4 * kMiB);
  gpu.MapAt(address, 4 * kMiB, memory);
  EXPECT_EQ(CONTROL(emucuda_spoil)(address), 0);
  ASSERT_EQ(Cuda().cuMemUnmap(address, 4 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemRelease(memory), CUDA_SUCCESS);
  const CUmemAllocationProp prop = DeviceMemoryProperties();
  CUmemGenericAllocationHandle handle = 0;
  int pages = 0;
  while (Cuda().cuMemCreate(&handle, 2 * kMiB, &prop, 0) == CUDA_SUCCESS) {
    ++pages;
  }
  EXPECT_EQ(pages, 31);
}

CONFORMANCE_TEST(UnkindDriver, VirtualGpuMayLackVirtualMemory) {
  setenv("EMUCUDA_VMM", "off", 1);
  const auto ask = [](CUdevice_attribute attribute) {
    int value = -1;
    EXPECT_EQ(Cuda().cuDeviceGetAttribute(&value, attribute, 0), CUDA_SUCCESS);
    return value;
  };
  ASSERT_EQ(Cuda().cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(ask(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 0);
  CUcontext context = nullptr;
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSetCurrent(context), CUDA_SUCCESS);
  const CUmemAllocationProp prop = DeviceMemoryProperties();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Cuda().cuMemCreate(&handle, 2 * kMiB, &prop, 0),
            CUDA_ERROR_NOT_SUPPORTED);
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&address, 2 * kMiB), CUDA_SUCCESS);
}

}  // namespace
}  // namespace fineserve::conformance

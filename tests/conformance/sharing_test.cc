// Memory that processes share, and memory that is freed when they die.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

constexpr uint64_t kSharedBytes = 64 * kMiB;

// Waits for the free bytes, because a driver may take a moment to reclaim a
// dead process's memory. The test's alarm bounds the wait.
void AwaitFreeBytes(const Session& gpu, uint64_t bytes) {
  while (gpu.FreeBytes() < bytes) sched_yield();
}

CONFORMANCE_TEST(Sharing, ExportedDescriptorSharesBytesAcrossProcesses) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    const int fd = channel.ReceiveDescriptor();
    const CUdeviceptr address = gpu.Reserve(kSharedBytes);
    gpu.MapAt(address, kSharedBytes, gpu.Import(fd));
    EXPECT_EQ(gpu.Read(address + kSharedBytes - 4), 11u);
    gpu.Write(address, 12);
    channel.Send(0);
  });
  const Session gpu;
  const auto handle = gpu.Create(kSharedBytes);
  const CUdeviceptr address = gpu.Reserve(kSharedBytes);
  gpu.MapAt(address, kSharedBytes, handle);
  gpu.Write(address + kSharedBytes - 4, 11);
  peer.channel().SendDescriptor(gpu.Export(handle));
  peer.channel().Receive();
  EXPECT_EQ(gpu.Read(address), 12u);
  peer.Join();
}

// cuda.h allows mapping a part of an object. We never do so, and the emulated
// device maps only whole objects.
CONFORMANCE_TEST(Sharing, ImportedHandleHasTheWholeSize) {
  EMULATED_ONLY("whether a part of an object can be mapped");
  const Session gpu;
  const int fd = gpu.Export(gpu.Create(kSharedBytes));
  const auto handle = gpu.Import(fd);
  const CUdeviceptr address = gpu.Reserve(kSharedBytes);
  EXPECT_EQ(Cuda().cuMemMap(address, kSharedBytes / 2, 0, handle, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemMap(address, kSharedBytes, 0, handle, 0), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Sharing, ImporterOutlivesTheExporter) {
  Peer owner([](Channel& channel) {
    const Session gpu;
    const auto handle = gpu.Create(kSharedBytes);
    const CUdeviceptr address = gpu.Reserve(kSharedBytes);
    gpu.MapAt(address, kSharedBytes, handle);
    gpu.Write(address, 21);
    channel.SendDescriptor(gpu.Export(handle));
    channel.Receive();  // until killed
  });
  const Session gpu;
  const int fd = owner.channel().ReceiveDescriptor();
  const auto handle = gpu.Import(fd);
  close(fd);
  owner.Kill();
  const CUdeviceptr address = gpu.Reserve(kSharedBytes);
  gpu.MapAt(address, kSharedBytes, handle);
  gpu.NewMapping(kSharedBytes);  // must not take the same memory
  EXPECT_EQ(gpu.Read(address), 21u);
}

CONFORMANCE_TEST(Sharing, DescriptorInFlightKeepsMemoryAlive) {
  Peer owner([](Channel& channel) {
    const Session gpu;
    const auto handle = gpu.Create(kSharedBytes);
    const CUdeviceptr address = gpu.Reserve(kSharedBytes);
    gpu.MapAt(address, kSharedBytes, handle);
    gpu.Write(address, 31);
    channel.SendDescriptor(gpu.Export(handle));
    channel.Receive();  // until killed
  });
  const int fd = owner.channel().ReceiveDescriptor();
  owner.Kill();
  const Session gpu;
  const CUdeviceptr other = gpu.NewMapping(kSharedBytes);
  gpu.Write(other, 32);
  const CUdeviceptr address = gpu.Reserve(kSharedBytes);
  gpu.MapAt(address, kSharedBytes, gpu.Import(fd));
  EXPECT_EQ(gpu.Read(address), 31u);
  EXPECT_EQ(gpu.Read(other), 32u);
}

CONFORMANCE_TEST(Sharing, DescriptorOutlivesItsHandle) {
  const Session gpu;
  const auto handle = gpu.Create(kSharedBytes);
  const int fd = gpu.Export(handle);
  ASSERT_EQ(Cuda().cuMemRelease(handle), CUDA_SUCCESS);
  const CUdeviceptr other = gpu.NewMapping(kSharedBytes);
  gpu.Write(other, 41);
  const CUdeviceptr address = gpu.Reserve(kSharedBytes);
  gpu.MapAt(address, kSharedBytes, gpu.Import(fd));
  gpu.Write(address, 42);
  EXPECT_EQ(gpu.Read(other), 41u);
}

CONFORMANCE_TEST(Sharing, ImportInTheExportingProcessAliases) {
  const Session gpu;
  const auto handle = gpu.Create(kSharedBytes);
  const int fd = gpu.Export(handle);
  const CUdeviceptr first = gpu.Reserve(kSharedBytes);
  const CUdeviceptr second = gpu.Reserve(kSharedBytes);
  gpu.MapAt(first, kSharedBytes, handle);
  gpu.MapAt(second, kSharedBytes, gpu.Import(fd));
  gpu.Write(first + kSharedBytes - 4, 51);
  EXPECT_EQ(gpu.Read(second + kSharedBytes - 4), 51u);
}

CONFORMANCE_TEST(Sharing, ImportLeavesTheDescriptorToItsOwner) {
  const Session gpu;
  const int fd = gpu.Export(gpu.Create(kSharedBytes));
  const auto first = gpu.Import(fd);
  ASSERT_GE(fcntl(fd, F_GETFD), 0);
  const auto second = gpu.Import(fd);
  ASSERT_EQ(close(fd), 0);
  ASSERT_EQ(Cuda().cuMemRelease(first), CUDA_SUCCESS);
  const CUdeviceptr address = gpu.Reserve(kSharedBytes);
  gpu.MapAt(address, kSharedBytes, second);
  gpu.Write(address, 61);
  EXPECT_EQ(gpu.Read(address), 61u);
}

CONFORMANCE_TEST(Sharing, ExportedDescriptorIsCloseOnExec) {
  EMULATED_ONLY("whether a program inherits it");
  const Session gpu;
  const int fd = gpu.Export(gpu.Create(kSharedBytes));
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
}

CONFORMANCE_TEST(Sharing, ForeignDescriptorIsRefused) {
  const Session gpu;
  const int fd = memfd_create("foreign", MFD_CLOEXEC);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_NE(Cuda().cuMemImportFromShareableHandle(
                &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
}

CONFORMANCE_TEST(Sharing, MemoryCreatedWithoutHandleTypeIsNotExported) {
  const Session gpu;
  CUmemAllocationProp prop = DeviceMemoryProperties();
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(Cuda().cuMemCreate(&handle, gpu.granularity(), &prop, 0),
            CUDA_SUCCESS);
  int fd = -1;
  EXPECT_NE(Cuda().cuMemExportToShareableHandle(
                &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
}

CONFORMANCE_TEST(Sharing, FreeBytesCountEveryProcess) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    channel.Send(0);
    channel.Receive();
    gpu.Create(kSharedBytes);
    channel.Send(0);
    channel.Receive();
  });
  peer.channel().Receive();
  const Session gpu;
  const uint64_t before = gpu.FreeBytes();
  peer.channel().Send(0);
  peer.channel().Receive();
  EXPECT_LE(gpu.FreeBytes() + kSharedBytes, before);
  peer.channel().Send(0);
  peer.Join();
}

CONFORMANCE_TEST(Sharing, KilledProcessGivesItsMemoryBack) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    gpu.NewMapping(kSharedBytes);
    channel.Send(gpu.FreeBytes());
    channel.Receive();  // until killed
  });
  const uint64_t while_alive = peer.channel().Receive();
  peer.Kill();
  const Session gpu;
  AwaitFreeBytes(gpu, while_alive + kSharedBytes);
  const CUdeviceptr address = gpu.NewMapping(kSharedBytes);
  gpu.Write(address, 1);
  EXPECT_EQ(gpu.Read(address), 1u);
}

CONFORMANCE_TEST(Sharing, ChildForkedAfterInitCannotUseTheDriver) {
  const Session gpu;
  process::ChildProcess child([] {
    size_t bytes;
    EXPECT_EQ(Cuda().cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(Cuda().cuMemGetInfo_v2(&bytes, &bytes),
              CUDA_ERROR_NOT_INITIALIZED);
    return Verdict();
  });
  EXPECT_EQ(child.Wait(), 0);
  gpu.Write(gpu.NewMapping(gpu.granularity()), 1);  // the parent still can
}

}  // namespace
}  // namespace fineserve::conformance

// Device work that outlives its client, and memory that starts dirty.

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <iterator>

#include "tests/conformance/gate.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/nvml.h"
#include "tests/conformance/session.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::conformance {
namespace {

constexpr uint64_t kBytes = 4 * kMiB;
constexpr uint32_t kBefore = 1;
constexpr uint32_t kQueued = 2;

// True if NVML's process list has this pid.
bool IsListed(pid_t pid) {
  void* device = nullptr;
  EXPECT_EQ(Nvml<int()>("nvmlInit_v2")(), 0);
  EXPECT_EQ(
      Nvml<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2")(0, &device),
      0);
  unsigned count = 64;
  ProcessInfo processes[64];
  const auto list = Nvml<int(void*, unsigned*, ProcessInfo*)>(
      "nvmlDeviceGetComputeRunningProcesses_v3");
  EXPECT_EQ(list(device, &count, processes), 0);
  return std::any_of(processes, processes + count, [&](const ProcessInfo& p) {
    return p.pid == static_cast<unsigned>(pid);
  });
}

// Waits until the driver has torn down a dead client.
void AwaitTeardown(pid_t pid) {
  ASSERT_TRUE(process::Eventually([&] { return !IsListed(pid); })) << pid;
}

CUresult QueueFill(CUdeviceptr to, CUstream stream) {
  return Cuda().cuMemsetD32Async(to, kQueued, kBytes / 4, stream);
}

// Queues the kernel of PyTorch's torch.full(…, dtype=torch.int32).
CUresult QueueKernel(CUdeviceptr to, CUstream stream) {
  constexpr char kPtx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
  constexpr char kFill[] =
      "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIiEESt"
      "5arrayIPcLm1EEEEviT0_T1_";
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  EXPECT_EQ(Cuda().cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0,
                                     nullptr, nullptr, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuLibraryGetKernel(&kernel, library, kFill), CUDA_SUCCESS);
  int count = kBytes / 4;
  uint32_t value = kQueued;
  void* arguments[] = {&count, &value, &to};
  return Cuda().cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1,
                               128, 1, 1, 0, stream, arguments, nullptr);
}

using Queue = CUresult (*)(CUdeviceptr to, CUstream stream);

// Queues a fill of imported memory behind a gate that never opens.
void QueueForEver(Channel& channel, Queue queue) {
  const Session gpu;
  const int fd = channel.ReceiveDescriptor();
  const CUmemGenericAllocationHandle handle = gpu.Import(fd);
  const CUdeviceptr address = gpu.Reserve(kBytes);
  gpu.MapAt(address, kBytes, handle);
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  ASSERT_EQ(queue(address, stream), CUDA_SUCCESS);
  channel.Send(0);
  channel.Receive();  // until killed
}

// Kills a client that has a fill queued, and returns what its memory holds once
// the driver no longer lists the client.
uint32_t WordAfterKill(const char* linger_ms, Queue queue = QueueFill) {
  Peer peer([linger_ms, queue](Channel& channel) {
    setenv("EMUCUDA_LINGER_MS", linger_ms, 1);
    QueueForEver(channel, queue);
  });
  const Session gpu;
  const CUmemGenericAllocationHandle handle = gpu.Create(kBytes);
  const CUdeviceptr address = gpu.Reserve(kBytes);
  gpu.MapAt(address, kBytes, handle);
  gpu.Write(address + kBytes - 4, kBefore);
  const int fd = gpu.Export(handle);
  peer.channel().SendDescriptor(fd);
  close(fd);
  peer.channel().Receive();
  EXPECT_TRUE(IsListed(peer.pid()));
  const pid_t pid = peer.pid();
  peer.Kill();
  AwaitTeardown(pid);
  return gpu.Read(address + kBytes - 4);
}

CONFORMANCE_TEST(Linger, QueuedWriteLandsBeforeTheClientLeavesTheList) {
  EXPECT_EQ(WordAfterKill("100"), kQueued);
}

CONFORMANCE_TEST(Linger, QueuedKernelWritesAsAFillDoes) {
  EXPECT_EQ(WordAfterKill("100", QueueKernel), kQueued);
}

CONFORMANCE_TEST(Linger, WithoutItQueuedWritesDieWithTheirClient) {
  EXPECT_EQ(WordAfterKill("0"), kBefore);
}

CONFORMANCE_TEST(Linger, ClientWithNothingQueuedIsGoneAtOnce) {
  Peer peer([](Channel& channel) {
    setenv("EMUCUDA_LINGER_MS", "3600000", 1);  // more than a test may take
    const Session gpu;
    gpu.Write(gpu.NewMapping(kBytes), 1);
    channel.Send(0);
    channel.Receive();
  });
  peer.channel().Receive();
  const pid_t pid = peer.pid();
  peer.Kill();
  AwaitTeardown(pid);
}

// Some drivers free a process's memory before its exit is reported; without
// lingering, the emulated driver does so too.
CONFORMANCE_TEST(Linger, WithoutItAClientHasLeftTheListWhenItsExitIsReported) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    gpu.Write(gpu.NewMapping(kBytes), 1);
    channel.Send(0);
    channel.Receive();
  });
  peer.channel().Receive();
  const pid_t pid = peer.pid();
  EXPECT_TRUE(IsListed(pid));
  peer.Kill();
  EXPECT_FALSE(IsListed(pid));
}

// From now on, neither this process nor its children can fork: clone without
// CLONE_VM fails with EAGAIN, while starting a program uses CLONE_VM and works.
// Returns false if the system does not allow such a filter.
bool RefuseForks() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_VM, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

CONFORMANCE_TEST(Linger, HelperThatCannotForkIsAnErrorOfTheStart) {
  setenv("EMUCUDA_LINGER_MS", "100", 1);
  if (!RefuseForks()) GTEST_SKIP() << "seccomp filters are not allowed";
  EXPECT_NE(Cuda().cuInit(0), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Poison, FreshMemoryReadsAsTheByte) {
  setenv("EMUCUDA_POISON", "255", 1);
  setenv("EMUCUDA_MEMORY", "64MiB", 1);
  const Session gpu;
  EXPECT_EQ(gpu.Read(gpu.NewMapping(gpu.granularity())), 0xffffffffu);
  CUdeviceptr small = 0;
  ASSERT_EQ(Cuda().cuMemAlloc_v2(&small, 4096), CUDA_SUCCESS);
  CUdeviceptr neighbour = 0;  // keeps the chunk when `small` goes
  ASSERT_EQ(Cuda().cuMemAlloc_v2(&neighbour, 4096), CUDA_SUCCESS);
  gpu.Write(small, 0);
  ASSERT_EQ(Cuda().cuMemFree_v2(small), CUDA_SUCCESS);
  CUdeviceptr again = 0;
  ASSERT_EQ(Cuda().cuMemAlloc_v2(&again, 4096), CUDA_SUCCESS);
  EXPECT_EQ(again, small);
  EXPECT_EQ(gpu.Read(again), 0xffffffffu);
}

}  // namespace
}  // namespace fineserve::conformance

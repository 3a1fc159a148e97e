// The emulated driver when processes die, at any instant, while others use it.

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/conformance/control.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

// Makes contexts take no memory, for a test of how much is allocated.
void CountOnlyAllocations() { setenv("EMUCUDA_CONTEXT_MEMORY", "0", 1); }

CONFORMANCE_TEST(Emulator, FreshMemoryOfADeadProcessReadsZero) {
  CountOnlyAllocations();
  Peer peer([](Channel& channel) {
    const Session gpu;
    EXPECT_EQ(Cuda().cuMemsetD8_v2(gpu.NewMapping(2 * kMiB), 0xff, 2 * kMiB),
              CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    channel.Send(0);
    channel.Receive();
  });
  peer.channel().Receive();
  peer.Kill();
  const Session gpu;
  EXPECT_EQ(CONTROL(emucuda_used_bytes)(0), 0u);
  EXPECT_EQ(gpu.Read(gpu.NewMapping(2 * kMiB)), 0u);
}

// Like NVIDIA's driver, which defers teardown while a child keeps the dead
// parent's descriptors open.
CONFORMANCE_TEST(Emulator, ForkedChildKeepsADeadParentsMemory) {
  CountOnlyAllocations();
  Peer parent([](Channel& channel) {
    const Session gpu;
    gpu.NewMapping(64 * kMiB);
    // Not a ChildProcess, because it must outlive its parent. The alarm ends it
    // if the test fails.
    if (fork() == 0) {
      alarm(300);
      channel.Send(static_cast<uint64_t>(getpid()));
      pause();
    }
    pause();
  });
  const pid_t child = static_cast<pid_t>(parent.channel().Receive());
  parent.Kill();
  const Session gpu;
  const auto used_bytes = CONTROL(emucuda_used_bytes);
  EXPECT_EQ(used_bytes(0), 64 * kMiB);
  kill(child, SIGKILL);
  while (used_bytes(0) != 0) sched_yield();  // bounded by the test's alarm
}

// A victim allocates, exports and frees without pause while it is killed; the
// device must stay usable and end up empty.
CONFORMANCE_TEST(Emulator, KillAtAnyInstantLeavesTheDeviceUsable) {
  CountOnlyAllocations();
  for (int round = 0; round < 20; ++round) {
    Peer victim([](Channel& channel) {
      const Session gpu;
      channel.Send(0);
      for (;;) {
        const auto handle = gpu.Create(2 * kMiB);
        close(gpu.Export(handle));
        Cuda().cuMemRelease(handle);
      }
    });
    victim.channel().Receive();
    for (int i = 0; i < round * 5; ++i) sched_yield();
    victim.Kill();
  }
  const Session gpu;
  EXPECT_EQ(CONTROL(emucuda_used_bytes)(0), 0u);
  EXPECT_EQ(gpu.Read(gpu.NewMapping(2 * kMiB)), 0u);
}

CONFORMANCE_TEST(Emulator, ProcessesAllocatingTogetherNeverShareAGranule) {
  constexpr int kRounds = 1000;
  const auto work = [](Channel& channel) {
    const Session gpu;
    const auto mark = static_cast<uint32_t>(getpid());
    channel.Receive();
    for (int i = 0; i < kRounds; ++i) {
      const CUdeviceptr address = gpu.NewMapping(2 * kMiB);
      ASSERT_EQ(gpu.Read(address), 0u);
      gpu.Write(address, mark);
      ASSERT_EQ(gpu.Read(address), mark);
      ASSERT_EQ(Cuda().cuMemUnmap(address, 2 * kMiB), CUDA_SUCCESS);
    }
  };
  Peer first(work), second(work);
  first.channel().Send(0);
  second.channel().Send(0);
  first.Join();
  second.Join();
}

CONFORMANCE_TEST(Emulator, ExitWithWorkInFlightDoesNotHang) {
  Peer peer([](Channel&) {
    const Session gpu;
    CONTROL(emucuda_set_stream_delay_us)(3'600'000'000);
    Cuda().cuMemsetD8Async(gpu.NewMapping(2 * kMiB), 1, 2 * kMiB, nullptr);
    exit(0);  // with destructors, unlike a test's own end
  });
  peer.Join();
}

}  // namespace
}  // namespace fineserve::conformance

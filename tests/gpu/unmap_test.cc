// A map or an unmap waits for work that is queued on the same device, and for
// the driver while it frees the memory of another process that has died. A view
// in mode "guarded" or "strict" swaps slabs in a thread of its engine.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <vector>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using namespace conformance;  // NOLINT: the tests call CUDA

constexpr int kRounds = 20;
constexpr uint64_t kPiece = 1024 * kMiB;
constexpr uint64_t kMostPieces = 60;

// One granule that is repeatedly mapped and unmapped.
class Swapped {
 public:
  explicit Swapped(const Session& gpu)
      : gpu_(gpu),
        granule_(gpu.Create(gpu.granularity())),
        address_(gpu.Reserve(gpu.granularity())) {}

  // Maps and unmaps the granule, and returns how long the slower of the two
  // calls took.
  double RoundMs() {
    const uint64_t began = NowNs();
    gpu_.MapAt(address_, gpu_.granularity(), granule_);
    const uint64_t mapped = NowNs();
    EXPECT_EQ(Cuda().cuMemUnmap(address_, gpu_.granularity()), CUDA_SUCCESS);
    const uint64_t unmapped = NowNs();
    return static_cast<double>(std::max(mapped - began, unmapped - mapped)) /
           1e6;
  }

 private:
  const Session& gpu_;
  const CUmemGenericAllocationHandle granule_;
  const CUdeviceptr address_;
};

double MedianRoundMs(Swapped* swapped) {
  std::vector<double> rounds;
  for (int i = 0; i < kRounds; ++i) rounds.push_back(swapped->RoundMs());
  return Median(rounds);
}

CONFORMANCE_TEST(Unmap, BesideQueuedWork) {
  const Session gpu;
  Swapped swapped(gpu);
  const CUstream stream = NewStream();
  // Fewer and smaller on the emulated device, because it fills on the host.
  const uint32_t fills = OnEmulatedDevice() ? 4 : 200;
  const uint64_t bytes = (OnEmulatedDevice() ? 16 : 256) * kMiB;
  const CUdeviceptr filled = gpu.NewMapping(bytes);
  Figure("call_of_an_idle_device_ms", MedianRoundMs(&swapped));
  for (uint32_t i = 1; i <= fills; ++i) {
    ASSERT_EQ(Cuda().cuMemsetD32Async(filled, i, bytes / 4, stream),
              CUDA_SUCCESS);
  }
  Figure("call_beside_queued_work_ms", MedianRoundMs(&swapped));
  Figure("it_waited_for_the_work",
         Cuda().cuStreamQuery(stream) == CUDA_SUCCESS ? 1 : 0);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(filled), fills);
  EXPECT_EQ(gpu.Read(filled + bytes - 4), fills);
}

// Takes most of the device until it is killed, and sends the number of pieces.
void TakeMuch(Channel& channel) {
  const Session gpu;
  const uint64_t pieces =
      std::min(gpu.FreeBytes() / 4 * 3 / kPiece, kMostPieces);
  for (uint64_t i = 0; i < pieces; ++i) gpu.NewMapping(kPiece);
  channel.Send(pieces);
  channel.Receive();
}

CONFORMANCE_TEST(Unmap, BesideADyingClientWithMuchMemory) {
  Peer dying(TakeMuch);
  const uint64_t pieces = dying.channel().Receive();
  const Session gpu;
  Swapped swapped(gpu);
  Figure("dying_gib", static_cast<double>(pieces));
  Figure("call_before_ms", MedianRoundMs(&swapped));
  const uint64_t wanted = gpu.FreeBytes() + pieces * kPiece;
  const uint64_t killed = NowNs();
  dying.Signal(SIGKILL);
  double longest = 0;
  double calls = 0;
  do {  // bounded by the test's alarm
    longest = std::max(longest, swapped.RoundMs());
    ++calls;
  } while (gpu.FreeBytes() < wanted && !testing::Test::HasFailure());
  Figure("memory_free_again_ms", static_cast<double>(NowNs() - killed) / 1e6);
  Figure("longest_call_ms", longest);
  Figure("calls", calls);
}

}  // namespace
}  // namespace fineserve::gpu

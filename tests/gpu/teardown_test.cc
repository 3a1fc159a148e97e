// Dead is not gone: how long after kill -9, with work in flight, does the
// driver still name the process, and when is its memory free again? FineServe
// keeps a dead engine's slabs quarantined for that long.

#include "tests/gpu/teardown.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "daemon/backing/nvml.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using namespace conformance;  // NOLINT: the tests call CUDA

constexpr uint64_t kBytes = 1024 * kMiB;
constexpr double kBeforeListedMs = 10'000;

// Fills until it is killed; the host runs ahead of the device as far as the
// driver lets it.
void Flood(Channel& channel) {
  const Session gpu;
  const CUdeviceptr address = gpu.NewMapping(kBytes);
  for (int i = 0;; ++i) {
    ASSERT_EQ(Cuda().cuMemsetD8Async(address, i, kBytes, nullptr),
              CUDA_SUCCESS);
    if (i == 100) channel.Send(gpu.FreeBytes());
  }
}

absl::StatusOr<backing::Nvml> LoadNvml() {
  CUuuid uuid = {};
  EXPECT_EQ(Cuda().cuDeviceGetUuid_v2(&uuid, 0), CUDA_SUCCESS);
  uint8_t bytes[16];
  std::copy(std::begin(uuid.bytes), std::end(uuid.bytes), bytes);
  const char* name = "libnvidia-ml.so.1";
  return backing::Nvml::Load(OnEmulatedDevice() ? EmulatedLibrary(name) : name,
                             bytes);
}

bool Lists(const backing::Nvml& nvml, pid_t pid) {
  const auto listed = nvml.Processes();
  EXPECT_TRUE(listed.ok()) << listed.status();
  if (!listed.ok()) return false;
  const std::vector<pid_t> pids = listed->All();
  return std::count(pids.begin(), pids.end(), pid) != 0;
}

double MsSince(uint64_t start) {
  return static_cast<double>(NowNs() - start) / 1e6;
}

// False if the driver never names it, as in a container with its own pids.
bool ListedInTime(const backing::Nvml& nvml, pid_t pid) {
  const uint64_t start = NowNs();
  while (!Lists(nvml, pid)) {
    if (MsSince(start) > kBeforeListedMs) return false;
    sched_yield();
  }
  return true;
}

}  // namespace

void MeasureTeardown() {
  Peer victim(Flood);
  const uint64_t while_alive = victim.channel().Receive();
  const Session gpu;
  const auto nvml = LoadNvml();
  if (!nvml.ok()) GTEST_SKIP() << nvml.status().message();
  const pid_t pid = victim.pid();
  if (!ListedInTime(*nvml, pid)) {
    GTEST_SKIP() << "NVML does not list this machine's processes by the pids "
                    "that they have here (a container without --pid=host?)";
  }
  const uint64_t killed = NowNs();
  victim.Kill();
  Figure("exit_reported_ms", MsSince(killed));
  Figure("still_listed_after_exit", Lists(*nvml, pid) ? 1 : 0);
  while (Lists(*nvml, pid)) sched_yield();  // bounded by the test's alarm
  Figure("left_the_list_ms", MsSince(killed));
  while (gpu.FreeBytes() < while_alive + kBytes) sched_yield();  // as above
  Figure("memory_free_again_ms", MsSince(killed));
}

CONFORMANCE_TEST(Teardown, KilledProcessLeavesTheDriversList) {
  MeasureTeardown();
}

}  // namespace fineserve::gpu

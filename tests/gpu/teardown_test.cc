// A dead process is not gone: how long after kill -9, with work in flight, does
// the driver still list it, and when is its memory free again? FineServe keeps
// a dead engine's slabs quarantined for that long.

#include "tests/gpu/teardown.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string>
#include <vector>

#include "daemon/fineserved/backing/nvml.h"
#include "kernels/driver/descriptor.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using namespace conformance;  // NOLINT: the tests call CUDA

constexpr uint64_t kBytes = 1024 * kMiB;
constexpr double kBeforeListedMs = 10'000;
constexpr uint32_t kOurs = 0x0f17e5e7;

// Returns the size of the memory that the victim fills. The emulated device
// fills on the host, so it gets less.
uint64_t FilledBytes() { return (OnEmulatedDevice() ? 2 : 256) * kMiB; }

// Allocates memory, and fills the memory that it is given until it is killed.
// The host runs ahead of the device as far as the driver lets it; the emulated
// driver sets no limit.
void Flood(Channel& channel) {
  const Session gpu;
  gpu.NewMapping(kBytes);
  const int fd = channel.ReceiveDescriptor();
  const CUdeviceptr address = gpu.Reserve(FilledBytes());
  gpu.MapAt(address, FilledBytes(), gpu.Import(fd));
  const int fills = OnEmulatedDevice() ? 200 : INT_MAX;
  for (int i = 0; i < fills; ++i) {
    ASSERT_EQ(Cuda().cuMemsetD8Async(address, static_cast<unsigned char>(i),
                                     FilledBytes(), nullptr),
              CUDA_SUCCESS);
    if (i == 100) channel.Send(0);
  }
  channel.Receive();
}

// Memory of this process that another process may write.
class Shared {
 public:
  explicit Shared(const Session& gpu)
      : handle_(gpu.Create(FilledBytes())),
        address_(gpu.Reserve(FilledBytes())) {
    gpu.MapAt(address_, FilledBytes(), handle_);
  }
  CUmemGenericAllocationHandle handle() const { return handle_; }

  void Overwrite() const {
    EXPECT_EQ(
        Cuda().cuMemsetD32Async(address_, kOurs, FilledBytes() / 4, nullptr),
        CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  uint64_t ChangedWords() const {
    std::vector<uint32_t> words(FilledBytes() / 4);
    EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(words.data(), address_, FilledBytes()),
              CUDA_SUCCESS);
    return static_cast<uint64_t>(
        std::count_if(words.begin(), words.end(),
                      [](uint32_t word) { return word != kOurs; }));
  }

 private:
  const CUmemGenericAllocationHandle handle_;
  const CUdeviceptr address_;
};

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

// Waits until the driver lists the process. Returns false if it never does, as
// in a container with a separate pid namespace.
bool ListedInTime(const backing::Nvml& nvml, pid_t pid) {
  const uint64_t start = NowNs();
  while (!Lists(nvml, pid)) {
    if (MsSince(start) > kBeforeListedMs) return false;
    sched_yield();
  }
  return true;
}

}  // namespace

void MeasureTeardown(uint64_t* changed_words, void (*in_victim)()) {
  Peer victim([in_victim](Channel& channel) {
    if (in_victim != nullptr) in_victim();
    Flood(channel);
  });
  const Session gpu;
  const Shared shared(gpu);
  const driver::Descriptor fd(gpu.Export(shared.handle()));
  victim.channel().SendDescriptor(fd.get());
  victim.channel().Receive();
  const auto nvml = LoadNvml();
  if (!nvml.ok()) GTEST_SKIP() << nvml.status().message();
  const pid_t pid = victim.pid();
  if (!ListedInTime(*nvml, pid)) {
    GTEST_SKIP() << "NVML does not list this machine's processes by the pids "
                    "that they have here (a container without --pid=host?)";
  }
  // Measured while this process has its context, so that the size of a context
  // does not matter.
  const uint64_t while_alive = gpu.FreeBytes();
  const uint64_t killed = NowNs();
  victim.Kill();
  Figure("exit_reported_ms", MsSince(killed));
  Figure("still_listed_after_exit", Lists(*nvml, pid) ? 1 : 0);
  while (Lists(*nvml, pid)) sched_yield();  // bounded by the test's alarm
  Figure("left_the_list_ms", MsSince(killed));
  shared.Overwrite();
  while (gpu.FreeBytes() < while_alive + kBytes) sched_yield();  // as above
  Figure("memory_free_again_ms", MsSince(killed));
  *changed_words = shared.ChangedWords();
}

// From then on, its slabs belong to another engine.
CONFORMANCE_TEST(Teardown, KilledProcessHasWrittenBeforeItLeavesTheList) {
  uint64_t changed_words = 0;
  MeasureTeardown(&changed_words);
  EXPECT_EQ(changed_words, 0u);
}

// Otherwise the test above might pass because it never notices a write.
CONFORMANCE_TEST(TeardownCheck, NoticesWritesOfAProcessThatHasLeftTheList) {
  EMULATED_ONLY("whether the work of a dead client of MPS is listed");
  setenv("EMUCUDA_MPS_SERVER", std::to_string(getpid()).c_str(), 1);
  setenv("EMUCUDA_MPS_WORK", "survives", 1);
  uint64_t changed_words = 0;
  MeasureTeardown(&changed_words, [] {
    setenv("EMUCUDA_LINGER_MS", "100", 1);
    setenv("EMUCUDA_STREAM_DELAY_US", "1000000000", 1);
  });
  EXPECT_GT(changed_words, 0u);
}

}  // namespace fineserve::gpu

// Our kernels on any driver, compared with their host twins. The emulated
// device runs these twins when a kernel is launched; a real one runs nvcc's
// code.

#include "kernels/kernel_set.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/fingerprint.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

using kernels::ByteRange;
using kernels::FingerprintOnHost;
using kernels::KernelSet;

constexpr uint64_t kMemoryBytes = 8 * kMiB;

uint64_t AddressOf(const std::vector<uint8_t>& bytes) {
  return reinterpret_cast<uint64_t>(bytes.data());
}

// Device memory, a digest in it, and what that memory should hold.
class Machine {
 public:
  Machine() : host_(kMemoryBytes) {
    const char* const real = getenv("FINESERVE_LIBCUDA");
    auto driver =
        Driver::Load(real != nullptr ? real : EmulatedLibrary("libcuda.so.1"));
    EXPECT_TRUE(driver.ok()) << driver.status();
    auto set = KernelSet::Load(*driver);
    loaded_ = set.status();
    EXPECT_TRUE(loaded_.ok() || absl::IsNotFound(loaded_)) << loaded_;
    if (!loaded_.ok()) return;
    set_.emplace(*std::move(set));
    EXPECT_EQ(Cuda().cuMemAlloc_v2(&memory_, kMemoryBytes), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuMemAlloc_v2(&digest_, sizeof(uint64_t)), CUDA_SUCCESS);
    for (uint8_t& byte : host_) byte = static_cast<uint8_t>(random_());
    EXPECT_EQ(Cuda().cuMemcpyHtoD_v2(memory_, host_.data(), host_.size()),
              CUDA_SUCCESS);
  }

  // Not OK if this build has no code for the device.
  const absl::Status& loaded() const { return loaded_; }
  const KernelSet& set() const { return *set_; }
  CUdeviceptr memory() const { return memory_; }
  CUdeviceptr digest() const { return digest_; }
  std::string seed() const { return "seed " + std::to_string(seed_); }

  // Returns the same ranges of the host's copy.
  std::vector<ByteRange> OnHost(std::vector<ByteRange> ranges) const {
    for (ByteRange& range : ranges) {
      range.address = range.address - memory_ + AddressOf(host_);
    }
    return ranges;
  }

  void Zero(const std::vector<ByteRange>& ranges) {
    EXPECT_TRUE(set_->Zero(ranges, nullptr).ok());
    for (const ByteRange& range : OnHost(ranges)) {
      memset(reinterpret_cast<void*>(range.address), 0, range.bytes);
    }
  }

  uint64_t ReadDigest() const {
    uint64_t digest = 0;
    EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(&digest, digest_, sizeof(digest)),
              CUDA_SUCCESS);
    return digest;
  }

  uint64_t DeviceDigest(const std::vector<ByteRange>& ranges) const {
    EXPECT_TRUE(set_->Fingerprint(ranges, digest_, nullptr).ok());
    return ReadDigest();
  }

  void ExpectSameDigest(const std::vector<ByteRange>& ranges) const {
    const auto host = OnHost(ranges);
    EXPECT_EQ(DeviceDigest(ranges),
              FingerprintOnHost(host.data(), host.size()));
  }

  void ExpectSameBytes() const {
    std::vector<uint8_t> device(kMemoryBytes);
    EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(device.data(), memory_, device.size()),
              CUDA_SUCCESS);
    EXPECT_TRUE(device == host_);
  }

  // Returns ranges that do not overlap and are not in order.
  std::vector<ByteRange> RandomRanges(size_t count) {
    const uint64_t share = kMemoryBytes / count;
    std::vector<ByteRange> ranges;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t begin = random_() % share;
      ranges.push_back(
          {memory_ + i * share + begin, random_() % (share - begin)});
    }
    std::shuffle(ranges.begin(), ranges.end(), random_);
    return ranges;
  }

 private:
  const Session session_;
  const unsigned seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  absl::Status loaded_;
  std::optional<KernelSet> set_;
  CUdeviceptr memory_ = 0;
  CUdeviceptr digest_ = 0;
  std::vector<uint8_t> host_;
};

// 127 ranges are one more than a launch takes.
constexpr size_t kRangeCounts[] = {1, 2, 126, 127, 1000};

CONFORMANCE_TEST(KernelSet, ZeroWritesItsRangesAndNothingElse) {
  Machine machine;
  if (!machine.loaded().ok()) GTEST_SKIP() << machine.loaded();
  SCOPED_TRACE(machine.seed());
  for (size_t count : kRangeCounts) machine.Zero(machine.RandomRanges(count));
  machine.ExpectSameBytes();
}

CONFORMANCE_TEST(KernelSet, DigestIsTheHostsBitForBit) {
  Machine machine;
  if (!machine.loaded().ok()) GTEST_SKIP() << machine.loaded();
  SCOPED_TRACE(machine.seed());
  machine.ExpectSameDigest({});
  machine.ExpectSameDigest({{machine.memory(), kMemoryBytes}});
  machine.ExpectSameDigest({{machine.memory() + 3, kMemoryBytes - 5}});
  for (size_t count : kRangeCounts) {
    machine.ExpectSameDigest(machine.RandomRanges(count));
  }
}

CONFORMANCE_TEST(KernelSet, OneByteLeftByAFormerTenantShows) {
  Machine machine;
  if (!machine.loaded().ok()) GTEST_SKIP() << machine.loaded();
  const std::vector<ByteRange> all = {{machine.memory(), kMemoryBytes}};
  machine.Zero(all);
  const uint64_t clean = machine.DeviceDigest(all);
  const std::vector<uint8_t> zeros(kMemoryBytes);
  const ByteRange expected = {AddressOf(zeros), kMemoryBytes};
  EXPECT_EQ(clean, FingerprintOnHost(&expected, 1));
  EXPECT_EQ(Cuda().cuMemsetD8_v2(machine.memory() + 5 * kMiB + 7, 1, 1),
            CUDA_SUCCESS);
  EXPECT_NE(machine.DeviceDigest(all), clean);
}

CONFORMANCE_TEST(KernelSet, DigestIsOfItsPlaceInTheStream) {
  Machine machine;
  if (!machine.loaded().ok()) GTEST_SKIP() << machine.loaded();
  const std::vector<ByteRange> ranges = {{machine.memory(), kMiB}};
  CUstream stream = nullptr;
  EXPECT_EQ(Cuda().cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  EXPECT_TRUE(machine.set().Zero(ranges, stream).ok());
  EXPECT_TRUE(machine.set().Fingerprint(ranges, machine.digest(), stream).ok());
  EXPECT_EQ(Cuda().cuMemsetD8Async(machine.memory(), 1, kMiB, stream),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  const std::vector<uint8_t> zeros(kMiB);
  const ByteRange expected = {AddressOf(zeros), kMiB};
  EXPECT_EQ(machine.ReadDigest(), FingerprintOnHost(&expected, 1));
}

CONFORMANCE_TEST(KernelSet, RangeThatIsTooLongIsRefused) {
  Machine machine;
  if (!machine.loaded().ok()) GTEST_SKIP() << machine.loaded();
  const ByteRange range = {machine.memory(),
                           kernels::kMostFingerprintBytes + 1};
  const absl::Status refused =
      machine.set().Fingerprint({range}, machine.digest(), nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
}

CONFORMANCE_TEST(KernelSet, RangeThatIsNotMappedEndsTheContext) {
  Machine machine;
  if (!machine.loaded().ok()) GTEST_SKIP() << machine.loaded();
  const Session gpu;
  const CUdeviceptr nothing = gpu.Reserve(gpu.granularity());
  EXPECT_TRUE(machine.set().Zero({{nothing, 64}}, nullptr).ok());
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace
}  // namespace fineserve::conformance

// Our kernel on any driver, compared with its host twin. The emulated device
// runs the twin when the kernel is launched; a real device runs nvcc's code.

#include "kernels/fingerprint_kernel.h"

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
using kernels::Fingerprint;
using kernels::FingerprintKernel;
using kernels::FingerprintOnHost;

constexpr uint64_t kMemoryBytes = 8 * kMiB;
constexpr size_t kMostRanges = 1000;

uint64_t AddressOf(const std::vector<uint8_t>& bytes) {
  return reinterpret_cast<uint64_t>(bytes.data());
}

// Device memory, digests in it, and what that memory should hold.
class Machine {
 public:
  Machine() : host_(kMemoryBytes) {
    const char* const real = getenv("FINESERVE_LIBCUDA");
    auto driver =
        Driver::Load(real != nullptr ? real : EmulatedLibrary("libcuda.so.1"));
    EXPECT_TRUE(driver.ok()) << driver.status();
    auto kernel = FingerprintKernel::Load(*driver);
    loaded_ = kernel.status();
    EXPECT_TRUE(loaded_.ok() || absl::IsNotFound(loaded_)) << loaded_;
    if (!loaded_.ok()) return;
    kernel_.emplace(*std::move(kernel));
    EXPECT_EQ(Cuda().cuMemAlloc_v2(&memory_, kMemoryBytes), CUDA_SUCCESS);
    EXPECT_EQ(
        Cuda().cuMemAlloc_v2(&digests_, kMostRanges * sizeof(Fingerprint)),
        CUDA_SUCCESS);
    for (uint8_t& byte : host_) byte = static_cast<uint8_t>(random_());
    EXPECT_EQ(Cuda().cuMemcpyHtoD_v2(memory_, host_.data(), host_.size()),
              CUDA_SUCCESS);
  }

  // Not OK if this build has no code for the device.
  const absl::Status& loaded() const { return loaded_; }
  CUdeviceptr memory() const { return memory_; }
  std::string seed() const { return "seed " + std::to_string(seed_); }

  // Returns the same ranges, at their addresses in the host's copy.
  std::vector<ByteRange> OnHost(std::vector<ByteRange> ranges) const {
    for (ByteRange& range : ranges) {
      range.address = range.address - memory_ + AddressOf(host_);
    }
    return ranges;
  }

  void Submit(const std::vector<ByteRange>& ranges, CUstream stream) const {
    const absl::Status status = kernel_->Launch(ranges, digests_, stream);
    EXPECT_TRUE(status.ok()) << status;
  }

  std::vector<Fingerprint> ReadDigests(size_t count) const {
    std::vector<Fingerprint> digests(count);
    EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(digests.data(), digests_,
                                     count * sizeof(Fingerprint)),
              CUDA_SUCCESS);
    return digests;
  }

  Fingerprint DigestOfAll() const {
    Submit({{memory_, kMemoryBytes}}, nullptr);
    return ReadDigests(1)[0];
  }

  void ExpectSameDigests(const std::vector<ByteRange>& ranges) const {
    Submit(ranges, nullptr);
    const auto digests = ReadDigests(ranges.size());
    const auto host = OnHost(ranges);
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_TRUE(digests[i] == FingerprintOnHost(host[i])) << "range " << i;
    }
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
  std::optional<FingerprintKernel> kernel_;
  CUdeviceptr memory_ = 0;
  CUdeviceptr digests_ = 0;
  std::vector<uint8_t> host_;
};

CONFORMANCE_TEST(FingerprintKernel, DigestIsTheHostsBitForBit) {
  Machine machine;
  if (!machine.loaded().ok()) GTEST_SKIP() << machine.loaded();
  SCOPED_TRACE(machine.seed());
  machine.ExpectSameDigests({});
  machine.ExpectSameDigests({{machine.memory(), kMemoryBytes}});
  machine.ExpectSameDigests({{machine.memory() + 3, kMemoryBytes - 5}});
  // 127 ranges are one more than a launch takes.
  for (const size_t count :
       {size_t{2}, size_t{126}, size_t{127}, kMostRanges}) {
    machine.ExpectSameDigests(machine.RandomRanges(count));
  }
}

CONFORMANCE_TEST(FingerprintKernel, OneByteLeftByAFormerTenantShows) {
  Machine machine;
  if (!machine.loaded().ok()) GTEST_SKIP() << machine.loaded();
  EXPECT_EQ(Cuda().cuMemsetD8_v2(machine.memory(), 0, kMemoryBytes),
            CUDA_SUCCESS);
  const Fingerprint clean = machine.DigestOfAll();
  const std::vector<uint8_t> zeros(kMemoryBytes);
  EXPECT_TRUE(clean == FingerprintOnHost({AddressOf(zeros), kMemoryBytes}));
  EXPECT_EQ(Cuda().cuMemsetD8_v2(machine.memory() + 5 * kMiB + 7, 1, 1),
            CUDA_SUCCESS);
  EXPECT_TRUE(machine.DigestOfAll() != clean);
}

CONFORMANCE_TEST(FingerprintKernel, DigestIsOfItsPlaceInTheStream) {
  Machine machine;
  if (!machine.loaded().ok()) GTEST_SKIP() << machine.loaded();
  CUstream stream = nullptr;
  EXPECT_EQ(Cuda().cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemsetD8Async(machine.memory(), 0, kMiB, stream),
            CUDA_SUCCESS);
  machine.Submit({{machine.memory(), kMiB}}, stream);
  EXPECT_EQ(Cuda().cuMemsetD8Async(machine.memory(), 1, kMiB, stream),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  const std::vector<uint8_t> zeros(kMiB);
  EXPECT_TRUE(machine.ReadDigests(1)[0] ==
              FingerprintOnHost({AddressOf(zeros), kMiB}));
}

CONFORMANCE_TEST(FingerprintKernel, RangeThatIsNotMappedEndsTheContext) {
  Machine machine;
  if (!machine.loaded().ok()) GTEST_SKIP() << machine.loaded();
  const Session gpu;
  machine.Submit({{gpu.Reserve(gpu.granularity()), 64}}, nullptr);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace
}  // namespace fineserve::conformance

// Is memory that is mapped from many granules copied as fast as one cuMemAlloc,
// and how does that depend on the size of the granules?

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "daemon/pool/geometry/pool_geometry.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"
#include "tests/gpu/measure.h"

namespace fineserve::gpu {
namespace {

using namespace conformance;  // NOLINT: the tests call CUDA

constexpr int kCopyRounds = 15;
// Heuristic: the least acceptable speed of a copy through slabs, relative to
// plain memory.
constexpr double kLeastRatio = 0.95;

CUdeviceptr OfGranules(const Session& gpu, uint64_t bytes, uint64_t unit) {
  const CUdeviceptr range = gpu.Reserve(bytes);
  for (uint64_t at = 0; at < bytes; at += unit) {
    const auto handle = gpu.Create(unit);
    EXPECT_EQ(Cuda().cuMemMap(range + at, unit, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuMemRelease(handle), CUDA_SUCCESS);
  }
  const auto access = DeviceAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(Cuda().cuMemSetAccess(range, bytes, &access, 1), CUDA_SUCCESS);
  return range;
}

// Measures device time between two events.
class Stopwatch {
 public:
  Stopwatch() {
    EXPECT_EQ(Cuda().cuEventCreate(&start_, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuEventCreate(&end_, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  }
  void Start() { EXPECT_EQ(Cuda().cuEventRecord(start_, nullptr), 0u); }
  double StopMs() {
    float ms = 0;
    EXPECT_EQ(Cuda().cuEventRecord(end_, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuEventElapsedTime(&ms, start_, end_), CUDA_SUCCESS);
    return ms;
  }

 private:
  CUevent start_ = nullptr, end_ = nullptr;
};

// GB/s, counting each byte read and each byte written.
struct Speed {
  std::vector<double> copy, fill;
};

void Measure(CUdeviceptr to, CUdeviceptr from, uint64_t bytes, Speed* speed) {
  Stopwatch watch;
  const auto gigabytes = static_cast<double>(bytes) / 1e9;
  watch.Start();
  ASSERT_EQ(Cuda().cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr),
            CUDA_SUCCESS);
  speed->copy.push_back(2 * gigabytes / watch.StopMs() * 1e3);
  watch.Start();
  ASSERT_EQ(Cuda().cuMemsetD32Async(to, 1, bytes / 4, nullptr), CUDA_SUCCESS);
  speed->fill.push_back(gigabytes / watch.StopMs() * 1e3);
}

void ExpectCopied(const Session& gpu, CUdeviceptr to, CUdeviceptr from,
                  uint64_t bytes) {
  gpu.Write(from + bytes - 4, 77);
  ASSERT_EQ(Cuda().cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(to + bytes - 4), 77u);
}

// Returns the ratio.
double Report(const std::string& what, const std::vector<double>& plain,
              const std::vector<double>& slabs) {
  const double ratio = Median(slabs) / Median(plain);
  Figure(what + "_plain_GBps", Median(plain));
  Figure(what + "_slabs_GBps", Median(slabs));
  Figure(what + "_ratio", ratio);
  return ratio;
}

// Compares the speed of memory in granules of `unit` bytes with that of a
// single allocation.
void Compare(uint64_t unit, double least_ratio) {
  const Session gpu;
  const uint64_t most = OnEmulatedDevice() ? 64 * kMiB : 4096 * kMiB;
  const uint64_t bytes =
      std::min(most, gpu.FreeBytes() / 5) / unit * unit;  // four of them
  if (bytes == 0) GTEST_SKIP() << "too large for this device";
  const CUdeviceptr plain[] = {Allocate(bytes), Allocate(bytes)};
  const CUdeviceptr slabs[] = {OfGranules(gpu, bytes, unit),
                               OfGranules(gpu, bytes, unit)};
  Speed of_plain, of_slabs, warm_up;
  Measure(plain[0], plain[1], bytes, &warm_up);
  Measure(slabs[0], slabs[1], bytes, &warm_up);
  for (int i = 0; i < kCopyRounds; ++i) {
    Measure(plain[0], plain[1], bytes, &of_plain);
    Measure(slabs[0], slabs[1], bytes, &of_slabs);
  }
  ExpectCopied(gpu, slabs[0], slabs[1], bytes);
  Figure("copied_MiB", static_cast<double>(bytes / kMiB));
  const std::string of = "_of_" + std::to_string(unit / kMiB) + "_MiB";
  const double copy = Report("copy" + of, of_plain.copy, of_slabs.copy);
  const double fill = Report("fill" + of, of_plain.fill, of_slabs.fill);
  if (OnEmulatedDevice()) return;
  EXPECT_GE(copy, least_ratio);
  EXPECT_GE(fill, least_ratio);
}

CONFORMANCE_TEST(Bandwidth, DefaultSlabsAgainstOneAllocation) {
  Compare(slab::kDefaultSlabBytes, kLeastRatio);
}

// Granules as small as a plane's share of a slab that is spread over many
// planes.
CONFORMANCE_TEST(Bandwidth, GranulesOf2MiB) { Compare(2 * kMiB, 0); }
CONFORMANCE_TEST(Bandwidth, GranulesOf4MiB) { Compare(4 * kMiB, 0); }
CONFORMANCE_TEST(Bandwidth, GranulesOf8MiB) { Compare(8 * kMiB, 0); }
CONFORMANCE_TEST(Bandwidth, GranulesOf16MiB) { Compare(16 * kMiB, 0); }

}  // namespace
}  // namespace fineserve::gpu

#include "kernels/fingerprint_kernel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/driver/status.h"
#include "kernels/fingerprint.h"

// kernels/device_image.S
extern "C" const char fineserve_device_image[];

namespace fineserve::kernels {
namespace {

using driver::CUstream;
using driver::EntryPoints;
using driver::ToStatus;

// Both are heuristics: enough blocks per range to fill a large device with one
// range, and enough lanes per thread to be worth starting it.
constexpr uint32_t kBlockThreads = 256;
constexpr uint64_t kMostBlocks = 2048;
constexpr uint64_t kBytesPerBlock = uint64_t{kBlockThreads} * kLaneBytes * 8;

}  // namespace

absl::StatusOr<FingerprintKernel> FingerprintKernel::Load(
    const driver::Driver& driver) {
  const EntryPoints& call = driver.call();
  if (call.cuModuleLoadData == nullptr || call.cuModuleUnload == nullptr ||
      call.cuModuleGetFunction == nullptr || call.cuLaunchKernel == nullptr) {
    return absl::FailedPreconditionError("this driver cannot load modules");
  }
  FingerprintKernel kernel(driver);
  absl::Status status = ToStatus(
      call, call.cuModuleLoadData(&kernel.module_, fineserve_device_image),
      "cuModuleLoadData(our kernel)");
  if (!status.ok()) return status;
  const driver::CUresult found = call.cuModuleGetFunction(
      &kernel.kernel_, kernel.module_, kFingerprintKernel);
  if (found == driver::CUDA_ERROR_NOT_FOUND) {
    return absl::NotFoundError(
        absl::StrCat("kernel ", kFingerprintKernel,
                     " is not in this build, which was made without nvcc"));
  }
  status = ToStatus(call, found, "cuModuleGetFunction(our kernel)");
  if (!status.ok()) return status;
  return kernel;
}

FingerprintKernel::FingerprintKernel(FingerprintKernel&& other) noexcept
    : driver_(std::move(other.driver_)),
      module_(std::exchange(other.module_, nullptr)),
      kernel_(other.kernel_) {}

// Destroying the context also unloads its modules, so an error here does not
// matter.
FingerprintKernel::~FingerprintKernel() {
  if (module_ != nullptr) driver_.call().cuModuleUnload(module_);
}

// Launches the kernel once for every batch of ranges that fits into one launch.
absl::Status FingerprintKernel::Launch(absl::Span<const ByteRange> ranges,
                                       driver::CUdeviceptr digests,
                                       CUstream stream) const {
  if (ranges.empty()) return absl::OkStatus();
  const EntryPoints& call = driver_.call();
  absl::Status status =
      ToStatus(call,
               call.cuMemsetD8Async(
                   digests, 0, ranges.size() * sizeof(Fingerprint), stream),
               "cuMemsetD8Async(digests)");
  RangeList list = {};
  while (status.ok() && list.first < ranges.size()) {
    const auto batch = ranges.subspan(list.first, kRangesPerLaunch);
    list.count = static_cast<uint32_t>(batch.size());
    std::copy(batch.begin(), batch.end(), list.ranges);
    uint64_t longest = 0;
    for (const ByteRange& r : batch) longest = std::max(longest, r.bytes);
    const auto blocks = static_cast<unsigned>(
        std::clamp(longest / kBytesPerBlock, uint64_t{1}, kMostBlocks));
    void* arguments[] = {&list, &digests};
    status = ToStatus(
        call,
        call.cuLaunchKernel(kernel_, blocks, list.count, 1, kBlockThreads, 1, 1,
                            0, stream, arguments, nullptr),
        absl::StrCat("cuLaunchKernel(", list.count, " ranges)"));
    list.first += list.count;
  }
  return status;
}

}  // namespace fineserve::kernels

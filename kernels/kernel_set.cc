#include "kernels/kernel_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/driver/status.h"
#include "kernels/fingerprint.h"

// kernels/device_image.S
extern "C" const char fineserve_device_image[];

namespace fineserve::kernels {
namespace {

using driver::CUfunction;
using driver::CUstream;
using driver::EntryPoints;
using driver::ToStatus;

// Both are heuristics: enough blocks per range to fill a large device with one
// range, and enough lanes per thread to be worth starting it.
constexpr uint32_t kBlockThreads = 256;
constexpr uint64_t kMostBlocks = 2048;
constexpr uint64_t kBytesPerBlock = uint64_t{kBlockThreads} * kLaneBytes * 8;

absl::Status FindKernel(const EntryPoints& call, driver::CUmodule module,
                        const char* name, CUfunction* out) {
  const driver::CUresult result = call.cuModuleGetFunction(out, module, name);
  if (result == driver::CUDA_ERROR_NOT_FOUND) {
    return absl::NotFoundError(absl::StrCat(
        "kernel ", name, " is not in this build, which was made without nvcc"));
  }
  return ToStatus(call, result,
                  absl::StrCat("cuModuleGetFunction(", name, ")"));
}

// Launches `kernel` on all ranges, as many at a time as a launch takes. `last`
// is its argument after them, or null.
absl::Status Launch(const EntryPoints& call, CUfunction kernel,
                    absl::Span<const ByteRange> ranges, void* last,
                    CUstream stream) {
  RangeList list = {};
  while (list.first < ranges.size()) {
    const auto batch = ranges.subspan(list.first, kRangesPerLaunch);
    list.count = static_cast<uint32_t>(batch.size());
    std::copy(batch.begin(), batch.end(), list.ranges);
    uint64_t longest = 0;
    for (const ByteRange& r : batch) longest = std::max(longest, r.bytes);
    const auto blocks = static_cast<unsigned>(
        std::clamp(longest / kBytesPerBlock, uint64_t{1}, kMostBlocks));
    void* arguments[] = {&list, last};
    absl::Status launched = ToStatus(
        call,
        call.cuLaunchKernel(kernel, blocks, list.count, 1, kBlockThreads, 1, 1,
                            0, stream, arguments, nullptr),
        absl::StrCat("cuLaunchKernel(", list.count, " ranges)"));
    if (!launched.ok()) return launched;
    list.first += list.count;
  }
  return absl::OkStatus();
}

absl::Status CheckFingerprintable(absl::Span<const ByteRange> ranges) {
  if (ranges.size() > kMostFingerprintRanges) {
    return absl::InvalidArgumentError(absl::StrCat(
        ranges.size(), " ranges are too many for one fingerprint (",
        kMostFingerprintRanges, " at most)"));
  }
  for (const ByteRange& range : ranges) {
    if (range.bytes <= kMostFingerprintBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("a range of ", range.bytes,
                                                   " bytes is longer than ",
                                                   kMostFingerprintBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KernelSet> KernelSet::Load(const driver::Driver& driver) {
  const EntryPoints& call = driver.call();
  if (call.cuModuleLoadData == nullptr || call.cuModuleUnload == nullptr ||
      call.cuModuleGetFunction == nullptr || call.cuLaunchKernel == nullptr) {
    return absl::FailedPreconditionError("this driver cannot load modules");
  }
  KernelSet set(driver);
  absl::Status status = ToStatus(
      call, call.cuModuleLoadData(&set.module_, fineserve_device_image),
      "cuModuleLoadData(our kernels)");
  if (status.ok()) {
    status = FindKernel(call, set.module_, kZeroKernel, &set.zero_);
  }
  if (status.ok()) {
    status =
        FindKernel(call, set.module_, kFingerprintKernel, &set.fingerprint_);
  }
  if (!status.ok()) return status;
  return set;
}

KernelSet::KernelSet(KernelSet&& other) noexcept
    : driver_(std::move(other.driver_)),
      module_(std::exchange(other.module_, nullptr)),
      zero_(other.zero_),
      fingerprint_(other.fingerprint_) {}

// The context unloads its modules too, so an error here does not matter.
KernelSet::~KernelSet() {
  if (module_ != nullptr) driver_.call().cuModuleUnload(module_);
}

absl::Status KernelSet::Zero(absl::Span<const ByteRange> ranges,
                             CUstream stream) const {
  return Launch(driver_.call(), zero_, ranges, nullptr, stream);
}

absl::Status KernelSet::Fingerprint(absl::Span<const ByteRange> ranges,
                                    driver::CUdeviceptr digest,
                                    CUstream stream) const {
  const EntryPoints& call = driver_.call();
  absl::Status status = CheckFingerprintable(ranges);
  if (!status.ok()) return status;
  status =
      ToStatus(call, call.cuMemsetD8Async(digest, 0, sizeof(uint64_t), stream),
               "cuMemsetD8Async(digest)");
  if (!status.ok()) return status;
  return Launch(call, fingerprint_, ranges, &digest, stream);
}

}  // namespace fineserve::kernels

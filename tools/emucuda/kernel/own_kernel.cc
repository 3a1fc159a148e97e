#include "tools/emucuda/kernel/own_kernel.h"

#include <algorithm>
#include <vector>

#include "kernels/fingerprint.h"
#include "tools/emucuda/memory/device_work.h"

namespace fineserve::emucuda {
namespace {

using kernels::ByteRange;
using kernels::Fingerprint;
using kernels::kLaneBytes;
using kernels::RangeList;

// The twin works on a copy, piece by piece. It reaches device memory through
// its file, where an unmapped address is an error and not a SIGSEGV.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
static_assert(kPieceBytes % kLaneBytes == 0);

// Adds the lanes of `range` to `sum`. Each piece is at the same offset within a
// lane as on the device.
CUresult AddLanes(const AddressSpace& space, int device, const ByteRange& range,
                  Fingerprint* sum) {
  std::vector<kernels::Lane> lanes(kPieceBytes / kLaneBytes + 1);
  char* const piece =
      reinterpret_cast<char*>(lanes.data()) + range.address % kLaneBytes;
  for (uint64_t done = 0; done < range.bytes; done += kPieceBytes) {
    const uint64_t bytes = std::min(kPieceBytes, range.bytes - done);
    const CUresult result =
        CopyOut(space, device, piece, range.address + done, bytes);
    if (result != CUDA_SUCCESS) return result;
    *sum += kernels::LaneShare({reinterpret_cast<uint64_t>(piece), bytes},
                               done / kLaneBytes, 0, 1);
  }
  return CUDA_SUCCESS;
}

CUresult RunFingerprint(const AddressSpace& space, int device,
                        const KernelArguments& arguments) {
  const auto list = ArgumentAs<RangeList>(arguments[0]);
  const auto digests = ArgumentAs<CUdeviceptr>(arguments[1]);
  // A device would read past its arguments.
  if (list.count > kernels::kRangesPerLaunch) {
    return driver::CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  for (uint32_t r = 0; r < list.count; ++r) {
    const CUdeviceptr at = digests + (list.first + r) * sizeof(Fingerprint);
    Fingerprint sum;
    CUresult result = CopyOut(space, device, &sum, at, sizeof(sum));
    sum += kernels::LengthTerm(list.ranges[r].bytes);
    if (result == CUDA_SUCCESS) {
      result = AddLanes(space, device, list.ranges[r], &sum);
    }
    if (result == CUDA_SUCCESS) {
      result = CopyIn(space, device, at, &sum, sizeof(sum));
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

std::optional<HostKernel> FindOwnKernel(std::string_view name) {
  if (name == kernels::kFingerprintKernel) {
    return HostKernel{
        .argument_bytes = {sizeof(RangeList), sizeof(CUdeviceptr)},
        .run = RunFingerprint,
        .fills = nullptr};
  }
  return std::nullopt;
}

}  // namespace fineserve::emucuda

// The kernel fineserve_fingerprint(RangeList, address of the digests) and its
// twin, LaneShare (fingerprint.h).

#include "kernels/fingerprint.h"

namespace fineserve::kernels {
namespace {

// Reads a lane byte by byte, if it is not aligned or is a range's short last
// one.
FINESERVE_KERNEL_CODE Lane GatherLane(uint64_t address, uint64_t bytes) {
  Lane lane{0, 0};
  for (uint64_t i = 0; i < bytes; ++i) {
    const uint64_t byte = *reinterpret_cast<const unsigned char*>(address + i);
    if (i < 8) {
      lane.low |= byte << (i * 8);
    } else {
      lane.high |= byte << (i * 8 - 64);
    }
  }
  return lane;
}

}  // namespace

FINESERVE_KERNEL_CODE Fingerprint LaneShare(const ByteRange& range,
                                            uint64_t first, uint64_t thread,
                                            uint64_t threads) {
  const uint64_t whole = range.bytes / kLaneBytes;
  const uint64_t left = range.bytes % kLaneBytes;
  const bool aligned = range.address % kLaneBytes == 0;
  Fingerprint sum;
  for (uint64_t i = thread; i < whole; i += threads) {
    const uint64_t at = range.address + i * kLaneBytes;
    const Lane lane = aligned ? LoadLane(at) : GatherLane(at, kLaneBytes);
    sum += Term(1 + first + i, lane.low, lane.high);
  }
  if (left != 0 && whole % threads == thread) {
    const Lane lane = GatherLane(range.address + whole * kLaneBytes, left);
    sum += Term(1 + first + whole, lane.low, lane.high);
  }
  return sum;
}

}  // namespace fineserve::kernels

#ifdef __CUDACC__
// Adds each range's sums to its digest. The number of threads in a block must
// be a multiple of a warp's.
extern "C" __global__ void fineserve_fingerprint(
    const __grid_constant__ fineserve::kernels::RangeList list,
    unsigned long long* digests) {
  using namespace fineserve::kernels;
  const ByteRange& range = list.ranges[blockIdx.y];
  const uint64_t thread =
      static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  Fingerprint sum = LaneShare(range, 0, thread,
                              static_cast<uint64_t>(gridDim.x) * blockDim.x);
  if (thread == 0) sum += LengthTerm(range.bytes);
  // One pair of atomic additions per warp, because all go to one address.
  for (int distance = 16; distance > 0; distance /= 2) {
    sum.low += __shfl_down_sync(0xffffffff, sum.low, distance);
    sum.high += __shfl_down_sync(0xffffffff, sum.high, distance);
  }
  if (threadIdx.x % 32 != 0) return;
  unsigned long long* const digest = digests + 2 * (list.first + blockIdx.y);
  atomicAdd(digest, sum.low);
  atomicAdd(digest + 1, sum.high);
}
#endif

// The kernel fineserve_zero(RangeList) and its twin, ZeroShare (zero.h).

#include "kernels/byte_range.h"

namespace fineserve::kernels {

// Whole lanes are stored at once, one thread after another, so that a warp's
// stores are adjacent. The up to 15 bytes before and after them are stored one
// by one.
FINESERVE_KERNEL_CODE void ZeroShare(const ByteRange& range, uint64_t thread,
                                     uint64_t threads) {
  const uint64_t end = range.address + range.bytes;
  const uint64_t up = (range.address + kLaneBytes - 1) & ~(kLaneBytes - 1);
  const uint64_t down = end & ~(kLaneBytes - 1);
  // A range inside one lane has no whole lane: all of it is the first edge.
  const uint64_t first = up < end ? up : end;
  const uint64_t last = first < down ? down : first;
  for (uint64_t at = range.address + thread; at < first; at += threads) {
    *reinterpret_cast<unsigned char*>(at) = 0;
  }
  for (uint64_t at = first + thread * kLaneBytes; at < last;
       at += threads * kLaneBytes) {
    StoreLane(at, Lane{0, 0});
  }
  for (uint64_t at = last + thread; at < end; at += threads) {
    *reinterpret_cast<unsigned char*>(at) = 0;
  }
}

}  // namespace fineserve::kernels

#ifdef __CUDACC__
extern "C" __global__ void fineserve_zero(
    const __grid_constant__ fineserve::kernels::RangeList list) {
  fineserve::kernels::ZeroShare(
      list.ranges[blockIdx.y],
      static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
      static_cast<uint64_t>(gridDim.x) * blockDim.x);
}
#endif

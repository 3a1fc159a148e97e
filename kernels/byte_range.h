#ifndef KERNELS_BYTE_RANGE_H_
#define KERNELS_BYTE_RANGE_H_

// Defines the arguments of our kernel, and the few macros and functions that
// let one source be compiled both for the device and as the kernel's host twin.
// C++17, for nvcc.

#include <cstdint>
#include <cstring>

// Marks functions that run on the device and on the host.
#ifdef __CUDACC__
#define FINESERVE_KERNEL_CODE __device__
#else
#define FINESERVE_KERNEL_CODE
#endif

namespace fineserve::kernels {

// Bytes at a device address (on the host, at an address of this process), with
// any alignment and length.
struct ByteRange {
  uint64_t address;
  uint64_t bytes;
};

// The ranges of one launch, passed by value among its arguments (at most 4
// KiB), so that a list needs no device memory. Row y of the grid works on range
// y.
inline constexpr uint32_t kRangesPerLaunch = 126;
struct RangeList {
  uint32_t count;
  uint32_t first;  // the number of ranges[0] in the caller's whole list
  ByteRange ranges[kRangesPerLaunch];
};
static_assert(sizeof(RangeList) == 2024, "kernels agree with their callers");

// Number of bytes that one thread moves at once.
inline constexpr uint64_t kLaneBytes = 16;
struct alignas(kLaneBytes) Lane {
  uint64_t low;
  uint64_t high;
};

// `address` must be a multiple of kLaneBytes. The host copies by memcpy,
// because the memory may hold objects of any type.
FINESERVE_KERNEL_CODE inline Lane LoadLane(uint64_t address) {
#ifdef __CUDACC__
  return *reinterpret_cast<const Lane*>(address);
#else
  Lane lane;
  memcpy(&lane, reinterpret_cast<const void*>(address), sizeof(lane));
  return lane;
#endif
}

// The kernel's name, for cuModuleGetFunction.
inline constexpr char kFingerprintKernel[] = "fineserve_fingerprint";

}  // namespace fineserve::kernels

#endif  // KERNELS_BYTE_RANGE_H_

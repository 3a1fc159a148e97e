#ifndef KERNELS_FINGERPRINT_H_
#define KERNELS_FINGERPRINT_H_

// A 64-bit digest of byte ranges that any number of threads compute together,
// in any order, with the same result on the device and on the host. It shows
// whether bytes were changed, moved or left behind by accident. It is not a
// cryptographic hash and does not protect against an adversary.
//
// Each range is cut into lanes of 16 bytes from its start, the last one padded
// with zeros; lane j of range r has two little-endian words a, b and
// the position p = r·2^40 + 1 + j. With all arithmetic modulo 2^64:
//
//   digest = Σ over ranges r  ( S(S(g·r·2^40) + bytes of r)
//                               + Σ over lanes  S(S(a + g·p) + b) )
//
// S is the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014, fig. 16 with Stafford's "Mix13"
// constants), a bijection; g = 2^64 / golden ratio is its increment there. A
// change of a single word therefore always shows, because it changes one term;
// other changes are missed once in 2^64, as far as S behaves like a random
// function. Equal bytes at other positions give other terms: order, place,
// length and the division into ranges all count. The digest of no ranges is 0.

#include <cstddef>
#include <cstdint>

#include "kernels/byte_range.h"

namespace fineserve::kernels {

inline constexpr uint64_t kPositionsPerRange = uint64_t{1} << 40;
// Positions are 64-bit numbers, and each lane of a range has one.
inline constexpr uint64_t kMostFingerprintBytes =
    (kPositionsPerRange - 1) * kLaneBytes;
inline constexpr uint64_t kMostFingerprintRanges = uint64_t{1} << 24;

FINESERVE_KERNEL_CODE inline uint64_t Scramble(uint64_t x) {  // S
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

FINESERVE_KERNEL_CODE inline uint64_t Term(uint64_t position, uint64_t first,
                                           uint64_t second) {
  constexpr uint64_t kIncrement = 0x9e3779b97f4a7c15;  // g
  return Scramble(Scramble(first + kIncrement * position) + second);
}

// The term of a range's length.
FINESERVE_KERNEL_CODE inline uint64_t LengthTerm(uint64_t range,
                                                 uint64_t bytes) {
  return Term(range * kPositionsPerRange, 0, bytes);
}

// The position of a range's first lane.
FINESERVE_KERNEL_CODE inline uint64_t FirstPosition(uint64_t range) {
  return range * kPositionsPerRange + 1;
}

#ifndef __CUDACC__

// Returns what thread `thread` of `threads` adds to the sum over the lanes of
// `range`, whose first lane has the given position: the kernel's host twin.
// Reads nothing outside the range. Threads may run at the same time.
uint64_t LaneShare(const ByteRange& range, uint64_t position, uint64_t thread,
                   uint64_t threads);

// The digest of ranges of this process's memory.
uint64_t FingerprintOnHost(const ByteRange* ranges, size_t count);

#endif

}  // namespace fineserve::kernels

#endif  // KERNELS_FINGERPRINT_H_

#ifndef KERNELS_FINGERPRINT_H_
#define KERNELS_FINGERPRINT_H_

// A 128-bit digest of a byte range that any number of threads compute together,
// in any order, with the same result on the device and on the host. The store
// identifies contents by it (design note 0039). It is not a cryptographic hash
// and does not protect against an adversary.
//
// The range is cut into lanes of 16 bytes from its start, the last one padded
// with zeros; lane j has two little-endian words a, b and the position
// p = 1 + j. The term of position 0 has the words 0 and the number of bytes.
// With all arithmetic modulo 2^64:
//
//   low  = Σ S(S(a + g·p) + b)      high = Σ S(S(b + h·p) + a)
//
// S is the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014, fig. 16 with Stafford's "Mix13"
// constants), a bijection; g = 2^64 / golden ratio is its increment there, h
// another odd number (2^64 · (√2 - 1), made odd). A change of a single word
// therefore always shows, because it changes one term of each sum; other
// changes are missed once in 2^128, as far as S behaves like a random function.
// Equal bytes at other positions give other terms: order and length count.

#include <cstddef>
#include <cstdint>

#include "kernels/byte_range.h"

namespace fineserve::kernels {

struct Fingerprint {
  uint64_t low = 0;
  uint64_t high = 0;
};

FINESERVE_KERNEL_CODE inline bool operator==(Fingerprint a, Fingerprint b) {
  return a.low == b.low && a.high == b.high;
}

FINESERVE_KERNEL_CODE inline bool operator!=(Fingerprint a, Fingerprint b) {
  return !(a == b);
}

// Orders fingerprints for sorted containers; the order has no meaning.
FINESERVE_KERNEL_CODE inline bool operator<(Fingerprint a, Fingerprint b) {
  return a.low != b.low ? a.low < b.low : a.high < b.high;
}

FINESERVE_KERNEL_CODE inline void operator+=(Fingerprint& sum,
                                             Fingerprint more) {
  sum.low += more.low;
  sum.high += more.high;
}

FINESERVE_KERNEL_CODE inline uint64_t Scramble(uint64_t x) {  // S
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

FINESERVE_KERNEL_CODE inline Fingerprint Term(uint64_t position, uint64_t first,
                                              uint64_t second) {
  constexpr uint64_t kLow = 0x9e3779b97f4a7c15;   // g
  constexpr uint64_t kHigh = 0x6a09e667f3bcc909;  // h
  return {Scramble(Scramble(first + kLow * position) + second),
          Scramble(Scramble(second + kHigh * position) + first)};
}

// The term of a range's length.
FINESERVE_KERNEL_CODE inline Fingerprint LengthTerm(uint64_t bytes) {
  return Term(0, 0, bytes);
}

#ifndef __CUDACC__

// The kernel's host twin. `range` is the part of a larger range that begins
// with lane `first`. Returns what thread `thread` of `threads` adds to the sum
// over the lanes of this part. Reads nothing outside the part. Threads may run
// at the same time.
Fingerprint LaneShare(const ByteRange& range, uint64_t first, uint64_t thread,
                      uint64_t threads);

// Returns the digest of a range of this process's memory.
Fingerprint FingerprintOnHost(const ByteRange& range);

#endif

}  // namespace fineserve::kernels

#endif  // KERNELS_FINGERPRINT_H_

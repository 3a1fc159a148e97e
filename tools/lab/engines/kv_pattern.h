#ifndef TOOLS_LAB_ENGINES_KV_PATTERN_H_
#define TOOLS_LAB_ENGINES_KV_PATTERN_H_

// The bytes that an engine writes into its memory. Every 8-byte word depends on
// seed, range and offset, so that a slab that went to two engines, to two
// layers or to the wrong offset shows up as a mismatch.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stock_engine {

// SplitMix64's finaliser: a bijection, so two offsets never share a word.
inline uint64_t PatternWord(uint64_t seed, uint64_t range, uint64_t word) {
  uint64_t x = word + seed * 0x9e3779b97f4a7c15 + range * 0xd1b54a32d192ed03;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Fills `bytes` bytes of `to` with the pattern of range number `range` at
// `offset`, a multiple of 8.
inline void FillPattern(uint64_t seed, uint64_t range, uint64_t offset,
                        char* to, size_t bytes) {
  for (size_t done = 0; done < bytes; done += 8) {
    const uint64_t word = PatternWord(seed, range, (offset + done) / 8);
    memcpy(to + done, &word, std::min<size_t>(8, bytes - done));
  }
}

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_KV_PATTERN_H_

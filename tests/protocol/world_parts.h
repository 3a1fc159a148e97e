#ifndef TESTS_PROTOCOL_WORLD_PARTS_H_
#define TESTS_PROTOCOL_WORLD_PARTS_H_

// Parts that the worlds share.

#include <stdlib.h>

#include <cstdint>

namespace fineserve::protocol {

// FNV-1a, byte by byte of what is added.
class Hash {
 public:
  void Add(uint64_t value) {
    for (int i = 0; i < 8; ++i) {
      hash_ = (hash_ ^ (value >> (8 * i) & 0xff)) * 0x100000001b3;
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

inline constexpr uint64_t kSlabBytes = 4096;
// The most things that one event makes a daemon do.
inline constexpr uint8_t kMostDeeds = 8;

// Ends the test if a world itself is wrong.
inline void Require(bool holds) {
  if (!holds) abort();
}

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_WORLD_PARTS_H_

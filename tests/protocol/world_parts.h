#ifndef TESTS_PROTOCOL_WORLD_PARTS_H_
#define TESTS_PROTOCOL_WORLD_PARTS_H_

#include <stdlib.h>

#include <cstdint>

// Parts that the worlds share.

namespace fineserve::protocol {

inline constexpr uint64_t kSlabBytes = 4096;
// The most things that one event makes a daemon do.
inline constexpr uint8_t kMostDeeds = 8;

// Ends the test if a world itself is wrong.
inline void Require(bool holds) {
  if (!holds) abort();
}

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_WORLD_PARTS_H_

#include "kernels/zero.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace fineserve::kernels {
namespace {

uint64_t AddressOf(const std::vector<uint8_t>& bytes) {
  return reinterpret_cast<uint64_t>(bytes.data());
}

// Zeroes [begin, begin + length) of a buffer of ones with this many threads,
// and expects the result of a loop over bytes.
void ExpectZeroed(uint64_t begin, uint64_t length, uint64_t threads) {
  SCOPED_TRACE(std::to_string(length) + " bytes at " + std::to_string(begin) +
               ", " + std::to_string(threads) + " threads");
  // It starts at a lane's boundary, as every heap allocation does.
  std::vector<uint8_t> buffer(begin + length + 64, 1);
  std::vector<uint8_t> expected = buffer;
  for (uint64_t i = 0; i < length; ++i) expected[begin + i] = 0;
  for (uint64_t t = threads; t-- > 0;) {
    ZeroShare({AddressOf(buffer) + begin, length}, t, threads);
  }
  ASSERT_EQ(buffer, expected);
}

TEST(ZeroTest, EveryAlignmentAndLengthWritesItsRangeAndNothingElse) {
  for (uint64_t begin = 0; begin < 2 * kLaneBytes; ++begin) {
    for (uint64_t length = 0; length < 5 * kLaneBytes; ++length) {
      for (uint64_t threads : {1, 2, 7, 64}) {
        ExpectZeroed(begin, length, threads);
      }
    }
  }
}

TEST(ZeroTest, RandomRangesAreZeroedByAnyNumberOfThreads) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  for (int i = 0; i < 300; ++i) {
    ExpectZeroed(below(100), below(20000), below(600) + 1);
  }
}

}  // namespace
}  // namespace fineserve::kernels

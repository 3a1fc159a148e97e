#include "kernels/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace fineserve::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

ByteRange RangeOf(const Bytes& bytes, uint64_t begin, uint64_t length) {
  return {reinterpret_cast<uint64_t>(bytes.data()) + begin, length};
}

// The header's formula, byte by byte and with independent arithmetic.
uint64_t Reference(const std::vector<ByteRange>& ranges) {
  const auto scramble = [](uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    x ^= x >> 31;
    return x;
  };
  const auto term = [&](uint64_t position, uint64_t a, uint64_t b) {
    return scramble(scramble(a + 0x9e3779b97f4a7c15 * position) + b);
  };
  uint64_t digest = 0;
  for (uint64_t r = 0; r < ranges.size(); ++r) {
    const auto* const bytes =
        reinterpret_cast<const uint8_t*>(ranges[r].address);
    digest += term(r << 40, 0, ranges[r].bytes);
    for (uint64_t lane = 0; lane * 16 < ranges[r].bytes; ++lane) {
      uint64_t words[2] = {0, 0};
      for (uint64_t i = 0; i < 16 && lane * 16 + i < ranges[r].bytes; ++i) {
        words[i / 8] += uint64_t{bytes[lane * 16 + i]} << (8 * (i % 8));
      }
      digest += term((r << 40) + 1 + lane, words[0], words[1]);
    }
  }
  return digest;
}

// The result of a grid of `threads` per range, last thread first.
uint64_t InShares(const std::vector<ByteRange>& ranges, uint64_t threads) {
  uint64_t digest = 0;
  for (uint64_t r = ranges.size(); r-- > 0;) {
    for (uint64_t t = threads; t-- > 0;) {
      digest += LaneShare(ranges[r], FirstPosition(r), t, threads);
    }
    digest += LengthTerm(r, ranges[r].bytes);
  }
  return digest;
}

uint64_t Digest(const std::vector<ByteRange>& ranges) {
  return FingerprintOnHost(ranges.data(), ranges.size());
}

Bytes RandomBytes(std::mt19937* random, size_t count) {
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((*random)());
  return bytes;
}

TEST(FingerprintTest, EveryAlignmentAndLengthIsTheReferences) {
  std::mt19937 random(1);
  const Bytes bytes = RandomBytes(&random, 200);
  for (uint64_t begin = 0; begin < 2 * kLaneBytes; ++begin) {
    for (uint64_t length = 0; length < 5 * kLaneBytes; ++length) {
      const std::vector<ByteRange> ranges = {RangeOf(bytes, begin, length)};
      const uint64_t expected = Reference(ranges);
      ASSERT_EQ(Digest(ranges), expected) << length << " at " << begin;
      for (uint64_t threads : {2, 3, 64}) {
        ASSERT_EQ(InShares(ranges, threads), expected)
            << length << " at " << begin << ", " << threads << " threads";
      }
    }
  }
}

TEST(FingerprintTest, RandomRangesAreTheReferencesForAnyNumberOfThreads) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const Bytes bytes = RandomBytes(&random, 30000);
  for (int i = 0; i < 100; ++i) {
    std::vector<ByteRange> ranges;
    for (auto count = random() % 8; ranges.size() < count;) {
      const uint64_t begin = random() % 10000;
      ranges.push_back(RangeOf(bytes, begin, random() % 20000));
    }
    const uint64_t expected = Reference(ranges);
    ASSERT_EQ(Digest(ranges), expected);
    ASSERT_EQ(InShares(ranges, random() % 2000 + 1), expected);
  }
}

TEST(FingerprintTest, EveryBitCounts) {
  std::mt19937 random(2);
  Bytes bytes = RandomBytes(&random, 45);
  const std::vector<ByteRange> ranges = {RangeOf(bytes, 0, 45)};
  const uint64_t digest = Digest(ranges);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_NE(Digest(ranges), digest) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  EXPECT_EQ(Digest(ranges), digest);
}

// Lanes or words that change places change the digest.
TEST(FingerprintTest, PlaceCounts) {
  std::mt19937 random(3);
  Bytes bytes = RandomBytes(&random, 64);
  const std::vector<ByteRange> all = {RangeOf(bytes, 0, 64)};
  const uint64_t digest = Digest(all);
  std::rotate(bytes.begin(), bytes.begin() + 16, bytes.end());
  EXPECT_NE(Digest(all), digest);
  std::rotate(bytes.begin(), bytes.end() - 16, bytes.end());
  EXPECT_EQ(Digest(all), digest);
  std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 8);
  EXPECT_NE(Digest(all), digest);
}

TEST(FingerprintTest, OrderAndCutOfRangesCount) {
  std::mt19937 random(4);
  const Bytes bytes = RandomBytes(&random, 64);
  const ByteRange first = RangeOf(bytes, 0, 32);
  const ByteRange second = RangeOf(bytes, 32, 32);
  EXPECT_NE(Digest({first, second}), Digest({second, first}));
  EXPECT_NE(Digest({first, second}), Digest({RangeOf(bytes, 0, 64)}));
  EXPECT_NE(Digest({first, second, RangeOf(bytes, 0, 0)}),
            Digest({first, second}));
}

// Like freshly zeroed memory: all lanes are equal.
TEST(FingerprintTest, ZerosOfEachLengthDiffer) {
  const Bytes zeros(300);
  std::vector<uint64_t> digests;
  for (uint64_t length = 0; length < zeros.size(); ++length) {
    digests.push_back(Digest({RangeOf(zeros, 0, length)}));
  }
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(std::adjacent_find(digests.begin(), digests.end()), digests.end());
}

// Digests that were recorded must stay comparable.
TEST(FingerprintTest, DigestsStayWhatTheyWere) {
  Bytes bytes(40);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(Digest({}), 0u);
  EXPECT_EQ(Digest({RangeOf(bytes, 0, 40), RangeOf(bytes, 3, 5)}),
            0x46a8f97d7f3ebc25u);
}

}  // namespace
}  // namespace fineserve::kernels

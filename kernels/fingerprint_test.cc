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

// Computes the header's formula byte by byte, with independent arithmetic.
Fingerprint Reference(const ByteRange& range) {
  const auto scramble = [](uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    x ^= x >> 31;
    return x;
  };
  Fingerprint digest;
  const auto add = [&](uint64_t position, uint64_t a, uint64_t b) {
    digest.low += scramble(scramble(a + 0x9e3779b97f4a7c15 * position) + b);
    digest.high += scramble(scramble(b + 0x6a09e667f3bcc909 * position) + a);
  };
  const auto* const bytes = reinterpret_cast<const uint8_t*>(range.address);
  add(0, 0, range.bytes);
  for (uint64_t lane = 0; lane * 16 < range.bytes; ++lane) {
    uint64_t words[2] = {0, 0};
    for (uint64_t i = 0; i < 16 && lane * 16 + i < range.bytes; ++i) {
      words[i / 8] += uint64_t{bytes[lane * 16 + i]} << (8 * (i % 8));
    }
    add(1 + lane, words[0], words[1]);
  }
  return digest;
}

// Returns the result of a grid of `threads` threads, the last thread first.
Fingerprint InShares(const ByteRange& range, uint64_t threads) {
  Fingerprint digest = LengthTerm(range.bytes);
  for (uint64_t t = threads; t-- > 0;) {
    digest += LaneShare(range, 0, t, threads);
  }
  return digest;
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
      const ByteRange range = RangeOf(bytes, begin, length);
      const Fingerprint expected = Reference(range);
      ASSERT_TRUE(FingerprintOnHost(range) == expected)
          << length << " at " << begin;
      for (uint64_t threads : {2, 3, 64}) {
        ASSERT_TRUE(InShares(range, threads) == expected)
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
    const ByteRange range = RangeOf(bytes, random() % 10000, random() % 20000);
    const Fingerprint expected = Reference(range);
    ASSERT_TRUE(FingerprintOnHost(range) == expected);
    ASSERT_TRUE(InShares(range, random() % 2000 + 1) == expected);
  }
}

// A range may be read in parts, as the emulated device does.
TEST(FingerprintTest, PartsAddUp) {
  std::mt19937 random(5);
  const Bytes bytes = RandomBytes(&random, 200);
  for (uint64_t lanes = 0; lanes * kLaneBytes <= bytes.size(); ++lanes) {
    const uint64_t cut = lanes * kLaneBytes;
    Fingerprint digest = LengthTerm(bytes.size());
    digest += LaneShare(RangeOf(bytes, 0, cut), 0, 0, 1);
    digest += LaneShare(RangeOf(bytes, cut, bytes.size() - cut), lanes, 0, 1);
    EXPECT_TRUE(digest == FingerprintOnHost(RangeOf(bytes, 0, bytes.size())));
  }
}

TEST(FingerprintTest, EveryBitCountsInBothHalves) {
  std::mt19937 random(2);
  Bytes bytes = RandomBytes(&random, 45);
  const ByteRange range = RangeOf(bytes, 0, 45);
  const Fingerprint digest = FingerprintOnHost(range);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_NE(FingerprintOnHost(range).low, digest.low) << "bit " << bit;
    EXPECT_NE(FingerprintOnHost(range).high, digest.high) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  EXPECT_TRUE(FingerprintOnHost(range) == digest);
}

// Swapping lanes or words changes the digest.
TEST(FingerprintTest, PlaceCountsInBothHalves) {
  std::mt19937 random(3);
  Bytes bytes = RandomBytes(&random, 64);
  const ByteRange all = RangeOf(bytes, 0, 64);
  const Fingerprint digest = FingerprintOnHost(all);
  const auto differs = [&] {
    const Fingerprint now = FingerprintOnHost(all);
    return now.low != digest.low && now.high != digest.high;
  };
  std::rotate(bytes.begin(), bytes.begin() + 16, bytes.end());
  EXPECT_TRUE(differs());
  std::rotate(bytes.begin(), bytes.end() - 16, bytes.end());
  EXPECT_TRUE(FingerprintOnHost(all) == digest);
  std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 8);
  EXPECT_TRUE(differs());
}

// Zeros are like freshly zeroed memory: all lanes are equal.
TEST(FingerprintTest, ZerosOfEachLengthDiffer) {
  const Bytes zeros(300);
  std::vector<Fingerprint> digests;
  for (uint64_t length = 0; length < zeros.size(); ++length) {
    digests.push_back(FingerprintOnHost(RangeOf(zeros, 0, length)));
  }
  std::sort(digests.begin(), digests.end());
  EXPECT_TRUE(std::adjacent_find(digests.begin(), digests.end()) ==
              digests.end());
}

// Daemons of two versions share a store: digests must stay comparable.
TEST(FingerprintTest, DigestsStayWhatTheyWere) {
  Bytes bytes(40);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  const Fingerprint digest = FingerprintOnHost(RangeOf(bytes, 0, 40));
  EXPECT_EQ(digest.low, 15025278032843029609u);
  EXPECT_EQ(digest.high, 5806709539180881319u);
}

}  // namespace
}  // namespace fineserve::kernels

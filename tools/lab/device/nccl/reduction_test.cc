#include "tools/lab/device/nccl/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace fineserve::nccl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Number, EveryHalfSurvivesSinglePrecision) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float f16 = FloatOfFloat16(half);
    const float bf16 = FloatOfBfloat16(half);
    if (f16 == f16) {
      EXPECT_EQ(Float16OfFloat(f16), half) << bits;
    } else {
      EXPECT_NE(FloatOfFloat16(Float16OfFloat(f16)), f16) << bits;
    }
    if (bf16 == bf16) {
      EXPECT_EQ(Bfloat16OfFloat(bf16), half) << bits;
    } else {
      EXPECT_NE(FloatOfBfloat16(Bfloat16OfFloat(bf16)), bf16) << bits;
    }
  }
}

TEST(Number, HalvesHaveTheirStandardsValues) {
  EXPECT_EQ(FloatOfFloat16(0x3c00), 1.0f);
  EXPECT_EQ(FloatOfFloat16(0xc100), -2.5f);
  EXPECT_EQ(FloatOfFloat16(0x7bff), 65504.0f);
  EXPECT_EQ(FloatOfFloat16(0x0001), 0x1p-24f);
  EXPECT_EQ(FloatOfFloat16(0x0400), 0x1p-14f);
  EXPECT_EQ(FloatOfFloat16(0xfc00), -kInfinity);
  EXPECT_EQ(FloatOfBfloat16(0x3f80), 1.0f);
  EXPECT_EQ(FloatOfBfloat16(0xc020), -2.5f);
}

// Expects that a value between two neighbours is rounded to the nearer one, and
// a value in the middle to the even one.
template <typename ToFloat, typename FromFloat>
void ExpectNearest(uint16_t last, ToFloat to_float, FromFloat from_float) {
  for (uint16_t low = 0; low < last; ++low) {
    const double below = to_float(low);
    const double above = to_float(static_cast<uint16_t>(low + 1));
    const auto middle = static_cast<float>((below + above) / 2);
    const auto high = static_cast<uint16_t>(low + 1);
    EXPECT_EQ(from_float(middle), low % 2 == 0 ? low : high);
    EXPECT_EQ(from_float(std::nextafter(middle, 0.0f)), low);
    EXPECT_EQ(from_float(std::nextafter(middle, kInfinity)), high);
  }
}

TEST(Number, HalvesAreRoundedToTheNearest) {
  ExpectNearest(0x7bff, FloatOfFloat16, Float16OfFloat);
  // The range begins at 2^-126, because single precision has no room between
  // smaller values.
  for (const uint16_t low : {0x0080, 0x3f80, 0x3f81, 0x4000, 0x7f00}) {
    const float below = FloatOfBfloat16(low);
    const float middle =
        FloatOfBfloat16(low) + (FloatOfBfloat16(low + 1) - below) / 2;
    EXPECT_EQ(Bfloat16OfFloat(middle), low % 2 == 0 ? low : low + 1);
  }
  EXPECT_EQ(Float16OfFloat(65519.99f), 0x7bff);
  EXPECT_EQ(Float16OfFloat(65520.0f), 0x7c00);
  EXPECT_EQ(Float16OfFloat(-1e30f), 0xfc00);
}

// A sum of many halves is rounded once.
TEST(Reduce, HalvesAreAddedInSinglePrecision) {
  const uint16_t one = Float16OfFloat(1);
  const uint16_t small = Float16OfFloat(0x1p-11f);  // half a unit of 1
  const std::vector<const char*> parts = {
      reinterpret_cast<const char*>(&one),
      reinterpret_cast<const char*>(&small),
      reinterpret_cast<const char*>(&small)};
  uint16_t sum = 0;
  Reduce(ncclFloat16, ncclSum, parts, reinterpret_cast<char*>(&sum), 1);
  EXPECT_EQ(FloatOfFloat16(sum), 1 + 0x1p-10f);
}

TEST(Reduce, IntegersWrapAround) {
  const int8_t values[] = {100, 100};
  const std::vector<const char*> parts = {
      reinterpret_cast<const char*>(&values[0]),
      reinterpret_cast<const char*>(&values[1])};
  int8_t result = 0;
  Reduce(ncclInt8, ncclSum, parts, reinterpret_cast<char*>(&result), 1);
  EXPECT_EQ(result, -56);
  Reduce(ncclInt8, ncclProd, parts, reinterpret_cast<char*>(&result), 1);
  EXPECT_EQ(result, 16);  // 10000 mod 256
}

TEST(Reduce, SignedAndUnsignedBytesCompareDifferently) {
  const uint8_t values[] = {1, 255};
  const std::vector<const char*> parts = {
      reinterpret_cast<const char*>(&values[0]),
      reinterpret_cast<const char*>(&values[1])};
  uint8_t result = 0;
  char* const to = reinterpret_cast<char*>(&result);
  Reduce(ncclUint8, ncclMax, parts, to, 1);
  EXPECT_EQ(result, 255);
  Reduce(ncclInt8, ncclMax, parts, to, 1);
  EXPECT_EQ(result, 1);
}

}  // namespace
}  // namespace fineserve::nccl

#include "tools/fsctl/terminal/quantities.h"

#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

struct AgeCase {
  const char* name;
  uint64_t now_ns;
  uint64_t then_ns;
  const char* text;
};

class AgeTest : public ::testing::TestWithParam<AgeCase> {};

TEST_P(AgeTest, ReadsAsPeopleSayIt) {
  EXPECT_EQ(Age(GetParam().now_ns, GetParam().then_ns), GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(
    , AgeTest,
    ::testing::Values(AgeCase{"Milliseconds", kSecond, kSecond / 10, "900 ms"},
                      AgeCase{"Seconds", 200 * kSecond, 81 * kSecond, "119 s"},
                      AgeCase{"Minutes", 200 * kSecond, 80 * kSecond, "2 min"},
                      AgeCase{"Hours", 7201 * kSecond, kSecond, "2 h"},
                      AgeCase{"Days", 48 * 3600 * kSecond + 1, 1, "2 d"},
                      AgeCase{"Unknown", 5, 0, "-"},
                      AgeCase{"Future", 5, 6, "-"}),
    [](const auto& info) { return info.param.name; });

TEST(QuantitiesTest, OrdinalsEndAsTheyAreSaid) {
  EXPECT_EQ(Ordinal(1), "1st");
  EXPECT_EQ(Ordinal(2), "2nd");
  EXPECT_EQ(Ordinal(3), "3rd");
  EXPECT_EQ(Ordinal(4), "4th");
  EXPECT_EQ(Ordinal(11), "11th");
  EXPECT_EQ(Ordinal(112), "112th");
  EXPECT_EQ(Ordinal(121), "121st");
}

TEST(QuantitiesTest, SizesAreBinary) {
  EXPECT_EQ(Size(512 << 20), "512 MiB");
  EXPECT_EQ(Size(0), "0 B");
}

}  // namespace
}  // namespace fineserve::fsctl

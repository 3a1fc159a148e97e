#include "daemon/contract/abi/byte_size.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::abi {
namespace {

TEST(ParseByteSizeTest, UnitsAreBinary) {
  const struct {
    const char* text;
    uint64_t bytes;
  } kCases[] = {{"0", 0},
                {"4711", 4711},
                {"4711B", 4711},
                {"2K", 2048},
                {"64MiB", 64ull << 20},
                {"64 MiB", 64ull << 20},
                {"16g", 16ull << 30},
                {"1TiB", 1ull << 40},
                {"16777215T", 16777215ull << 40}};
  for (const auto& c : kCases) {
    uint64_t bytes = 1;
    EXPECT_TRUE(ParseByteSize(c.text, &bytes)) << c.text;
    EXPECT_EQ(bytes, c.bytes) << c.text;
  }
}

TEST(ParseByteSizeTest, AnythingElseIsRefusedAndLeavesTheResultAlone) {
  for (const char* text : {"", "x", "-1", "+1", " 1", "1.5G", "1MB", "1Mib2",
                           "1 ", "1BiB", "99999999999999999999", "16777216T"}) {
    uint64_t bytes = 7;
    EXPECT_FALSE(ParseByteSize(text, &bytes)) << text;
    EXPECT_EQ(bytes, 7u);
  }
}

TEST(FormatByteSizeTest, LargestUnitWithAtMostOneDecimal) {
  const struct {
    uint64_t bytes;
    const char* text;
  } kCases[] = {{0, "0 B"},
                {1023, "1023 B"},
                {64ull << 20, "64 MiB"},
                {(1ull << 30) + (1ull << 29), "1.5 GiB"},
                {UINT64_MAX, "16777216.0 TiB"}};
  for (const auto& c : kCases) {
    char text[kByteSizeText];
    FormatByteSize(c.bytes, text);
    EXPECT_EQ(std::string(text), c.text);
  }
}

}  // namespace
}  // namespace fineserve::abi

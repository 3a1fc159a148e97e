#include "tools/fsctl/limit/limit_amount.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

// 16 slabs of 8 MiB, which may become 32.
abi::TableSnapshot Table() {
  abi::TableSnapshot table;
  table.granule_bytes = 2 << 20;
  table.granules_per_slab = 4;
  table.wanted_slabs = 16;
  table.slabs.resize(32);
  return table;
}

struct Case {
  const char* text;
  uint32_t slabs;
  const char* unrounded;
};

TEST(LimitAmountTest, AmountsAreRoundedDownToSlabsOfThePoolAsItIs) {
  const Case cases[] = {{"none", 0, ""},         {"100%", 16, ""},
                        {"30%", 4, "4.8"},       {"25%", 4, ""},
                        {"12.5%", 2, ""},        {"6.25%", 1, ""},
                        {"99.99%", 15, "15.99"}, {"8MiB", 1, ""},
                        {"20M", 2, "2.5"},       {"1GiB", 32, ""}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const auto amount = ParseLimitAmount(c.text);
    ASSERT_TRUE(amount.ok()) << amount.status();
    EXPECT_EQ(*SlabsOf(*amount, Table()), c.slabs);
    EXPECT_EQ(UnroundedSlabs(*amount, Table()), c.unrounded);
  }
}

TEST(LimitAmountTest, WhatIsNoAmountIsRefusedWithWhatIs) {
  const std::pair<const char*, const char*> cases[] = {
      {"nnoe", "did you mean none?"},
      {"off", "a part of the pool (30%), a size (8GiB) or none"},
      {"30", "Give 30% or 30GiB"},
      {"0%", "more than 0%"},
      {"101%", "at most 100%"},
      {"nan%", "more than 0%"},
      {"%", "more than 0%"},
      {"-8GiB", "not an amount"}};
  for (const auto& [text, why] : cases) {
    const auto amount = ParseLimitAmount(text);
    ASSERT_FALSE(amount.ok()) << text;
    EXPECT_THAT(std::string(amount.status().message()), HasSubstr(why));
  }
}

TEST(LimitAmountTest, LessThanASlabIsRefusedNamingTheLeastAmount) {
  for (const char* text : {"6%", "7MiB", "0B"}) {
    const auto slabs = SlabsOf(*ParseLimitAmount(text), Table());
    ASSERT_FALSE(slabs.ok()) << text;
    EXPECT_THAT(std::string(slabs.status().message()),
                HasSubstr("the least limit is 8MiB (6.25%)"));
  }
}

// The amount that is named as the least must be enough, as a size and in
// percent.
TEST(LimitAmountTest, LeastAmountGivesThatManySlabs) {
  abi::TableSnapshot table = Table();
  for (table.wanted_slabs = 1; table.wanted_slabs <= 32; ++table.wanted_slabs) {
    for (uint32_t slabs = 1; slabs <= table.wanted_slabs; ++slabs) {
      const std::string least = LeastAmount(slabs, table);
      const size_t space = least.find(' ');
      const std::string percent =
          least.substr(space + 2, least.size() - space - 3);
      for (const std::string& text : {least.substr(0, space), percent}) {
        EXPECT_EQ(*SlabsOf(*ParseLimitAmount(text), table), slabs)
            << text << " of " << table.wanted_slabs;
      }
    }
  }
}

}  // namespace
}  // namespace fineserve::fsctl

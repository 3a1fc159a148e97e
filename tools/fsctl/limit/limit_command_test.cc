#include "tools/fsctl/limit/limit_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/contract/abi/view_messages.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

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

TEST(LimitAmountTest, OtherTextIsRefusedWithValidAmounts) {
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

// The amount that the message names as the least must be enough, both as a size
// and in percent.
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

// The pool has 16 slabs of 8 MiB. Engine 3 has a view with a floor of 2 and
// holds 14.
class LimitOutputTest : public ::testing::Test {
 protected:
  LimitOutputTest() {
    table_.granule_bytes = 2 << 20;
    table_.granules_per_slab = 4;
    table_.wanted_slabs = 16;
    table_.slabs.resize(16);
    chat_.id = 3;
    chat_.name = "chat";
    chat_.slabs_held = 14;
    chat_.view.floor = 2;
  }
  LimitChange Change(const std::string& asked, uint32_t slabs,
                     uint32_t whole = 0) {
    abi::LimitDone done = {};
    done.slabs = slabs;
    done.held = 14;
    done.whole = whole;
    return {asked, *ParseLimitAmount(asked), chat_, done};
  }
  std::string Text(const std::string& asked, uint32_t slabs,
                   uint32_t whole = 0) {
    return LimitChangeText(table_, Change(asked, slabs, whole));
  }

  abi::TableSnapshot table_;
  abi::EngineSnapshot chat_;
};

TEST_F(LimitOutputTest, ChangeSaysWhatWasAskedWhatCameOfItAndWhatIsAbove) {
  EXPECT_EQ(Text("30%", 4),
            "chat: at most 4 slabs (32 MiB): 30% of the pool's 16 = 4.8 "
            "rounded down; it holds 14, 10 are asked back\n");
  EXPECT_EQ(Text("120MiB", 15),
            "chat: at most 15 slabs (120 MiB): 120MiB; it holds 14\n");
  EXPECT_THAT(Text("100%", 16), HasSubstr("it changes nothing"));
}

TEST_F(LimitOutputTest, WholeSlabsAreSaidNotToBeAskedBack) {
  const std::string whole = "leased whole and come back when it frees them";
  EXPECT_THAT(Text("30%", 4, 14), HasSubstr("it holds 14, 14 are " + whole));
  EXPECT_THAT(Text("30%", 4, 10),
              HasSubstr("it holds 14, 2 are asked back, 10 are " + whole))
      << "two are its floor";
  EXPECT_THAT(Text("100%", 16, 14), Not(HasSubstr("whole and")));
}

TEST_F(LimitOutputTest, TakingALimitAwaySaysWhetherThereWasOne) {
  EXPECT_EQ(Text("none", 0), "chat: it had no limit\n");
  chat_.limit = 4;
  EXPECT_EQ(Text("none", 0), "chat: no limit now\n");
}

TEST_F(LimitOutputTest, EngineOnSeveralGpusIsNamedAsOne) {
  chat_.view.flags = abi::kViewOfGroup;
  EXPECT_THAT(Text("30%", 4), HasSubstr("spans several GPUs"));
}

TEST_F(LimitOutputTest, ListShowsLimitsAndWhatIsAboveThem) {
  abi::EngineSnapshot other;
  other.id = 4;
  other.name = "code";
  other.slabs_held = 2;
  chat_.limit = 4;
  EXPECT_EQ(LimitsText(table_, {chat_, other}, /*color=*/false),
            "ID  NAME  LIMIT    SIZE  OF POOL  HELD  ABOVE  FLOOR\n"
            " 3  chat      4  32 MiB  25.00 %    14     10      2\n"
            " 4  code   none       -        -     2      -      0\n");
  const Json json = Json::parse(LimitsJson(table_, {chat_, other}));
  EXPECT_EQ(json["pool_slabs"], 16);
  EXPECT_EQ(json["engines"][0]["limit_slabs"], 4);
  EXPECT_EQ(json["engines"][0]["limit_bytes"], 32 << 20);
  EXPECT_EQ(json["engines"][0]["above_slabs"], 10);
  EXPECT_TRUE(json["engines"][1]["limit_slabs"].is_null());
}

TEST_F(LimitOutputTest, JsonOfAChangeHasWhatWasAskedAndWhatCameOfIt) {
  const Json json = Json::parse(LimitChangeJson(table_, Change("30%", 4, 1)));
  EXPECT_EQ(json["name"], "chat");
  EXPECT_EQ(json["asked"], "30%");
  EXPECT_EQ(json["limit_slabs"], 4);
  EXPECT_EQ(json["held_slabs"], 14);
  EXPECT_EQ(json["whole_slabs"], 1);
  EXPECT_EQ(json["above_slabs"], 10);
  EXPECT_EQ(json["floor_slabs"], 2);
}

}  // namespace

}  // namespace fineserve::fsctl

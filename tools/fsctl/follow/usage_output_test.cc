#include "tools/fsctl/follow/usage_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fineserve::fsctl {
namespace {

using nlohmann::json;

TEST(UsageOutputTest, EachKeyHasItsLine) {
  const json usages = json::parse(R"({"keys":[
    {"key":"alice","requests":12,"prompt_tokens":900,"output_tokens":100,
     "tokens_today":850,"tokens_per_day":1000,"under_way":2},
    {"key":"bob","requests":0,"prompt_tokens":0,"output_tokens":0,
     "tokens_today":0,"tokens_per_day":null,"under_way":0}]})");
  EXPECT_EQ(UsageText(usages, false),
            "KEY    REQUESTS  PROMPT  OUTPUT  TODAY  OF A DAY  UNDER WAY\n"
            "alice        12     900     100    850      1000          2\n"
            "bob           0       0       0      0         -          0\n");
  EXPECT_NE(UsageText(usages, true).find("\x1b[33m"), std::string::npos);
}

TEST(UsageOutputTest, StrangeAnswersShowDashes) {
  EXPECT_NE(
      UsageText(json::parse(R"({"keys":[1,{"key":2}]})"), false).find("-"),
      std::string::npos);
  for (const char* none : {"{}", "[]", R"({"keys":3})", R"({"keys":[]})"}) {
    EXPECT_EQ(UsageText(json::parse(none), false).substr(0, 15),
              "no key has a na")
        << none;
  }
}

}  // namespace
}  // namespace fineserve::fsctl

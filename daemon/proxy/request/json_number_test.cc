#include "daemon/proxy/request/json_number.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::proxy {
namespace {

struct Text {
  const char* name;
  const char* json;
  absl::optional<uint32_t> number;
};

class NumberOfTable : public testing::TestWithParam<Text> {};

TEST_P(NumberOfTable, Reads) {
  EXPECT_EQ(NumberOf(GetParam().json, "count"), GetParam().number);
}

INSTANTIATE_TEST_SUITE_P(
    , NumberOfTable,
    testing::Values(
        Text{"OfVllm", R"({"count":3,"max_model_len":9,"tokens":[1,2,3]})", 3},
        Text{"BehindBlanks", R"({"count": 12 })", 12},
        Text{"BehindOthers", R"({"max_model_len":9,"count":7})", 7},
        Text{"Cut", R"({"count":3,"max_mo)", 3},
        Text{"CutInTheNumber", R"({"count":12)", absl::nullopt},
        Text{"CutBeforeTheNumber", R"({"count": )", absl::nullopt},
        Text{"Absent", R"({"tokens":[1,2,3]})", absl::nullopt},
        Text{"InsideAText", R"({"x":"\"count\":5"})", absl::nullopt},
        Text{"PartOfAnotherKey", R"({"discount":5})", absl::nullopt},
        Text{"Negative", R"({"count":-1})", absl::nullopt},
        Text{"Fraction", R"({"count":1.5})", absl::nullopt},
        Text{"Power", R"({"count":1e3})", absl::nullopt},
        Text{"Quoted", R"({"count":"5"})", absl::nullopt},
        Text{"Null", R"({"count":null})", absl::nullopt},
        Text{"TooLarge", R"({"count":4294967296})", absl::nullopt},
        Text{"Largest", R"({"count":4294967295})", UINT32_MAX},
        Text{"Nothing", "", absl::nullopt}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fineserve::proxy

#include "bench/replan/moves.h"

#include <gtest/gtest.h>

namespace fineserve::bench {
namespace {

constexpr char kHistory[] =
    R"json([{"number": 1, "why": "models had no engine: a-0 serves"},
        {"number": 3, "why": "a moves from a-0 to a-1 (why)"},
        {"number": 4, "why": "a-1 serves, a-0 retires"},
        {"number": 5, "why": "a-0 is off"},
        {"number": 8, "why": "b moves from b-1 to b-0 (why)"},
        {"number": 9, "why": "the move is undone: b-0 did not serve within 1 s"},
        {"number": 11, "why": "c moves from c-1 to c-0 (why)"},
        {"number": 12, "why": "c-0 is lost, c-1 serves again"}])json";

TEST(MovesTest, CountsMovesAndThoseThatWereUndone) {
  EXPECT_EQ(MovesIn(kHistory, 0).begun, 3);
  EXPECT_EQ(MovesIn(kHistory, 0).undone, 2);
}

TEST(MovesTest, PlansUpToTheNumberDoNotCount) {
  EXPECT_EQ(MovesIn(kHistory, 3).begun, 2);
  EXPECT_EQ(MovesIn(kHistory, 9).undone, 1);
  EXPECT_EQ(MovesIn(kHistory, 12).begun, 0);
}

TEST(MovesTest, OtherTextHasNoMoves) {
  for (const char* text : {"", "fsctl: no daemon", "{}", "[1, {}, null]"}) {
    EXPECT_EQ(MovesIn(text, 0).begun, 0) << text;
  }
}

TEST(PlanNumberTest, IsZeroWithoutAPlan) {
  EXPECT_EQ(PlanNumber(R"({"number": 7, "places": []})"), 7u);
  EXPECT_EQ(PlanNumber(R"({"number": null})"), 0u);
  EXPECT_EQ(PlanNumber("fsctl: no daemon"), 0u);
}

TEST(IsAtRestTest, NothingStartsOrRetires) {
  EXPECT_TRUE(IsAtRest(
      R"({"number": 1, "places": [{"state": "serve"}, {"state": "off"}]})"));
  EXPECT_FALSE(IsAtRest(
      R"({"number": 1, "places": [{"state": "serve"}, {"state": "retire"}]})"));
  EXPECT_FALSE(IsAtRest(R"({"number": 1, "places": [{"state": "off"}]})"));
  EXPECT_FALSE(IsAtRest(R"({"number": null, "places": []})"));
  EXPECT_FALSE(IsAtRest(""));
}

}  // namespace
}  // namespace fineserve::bench

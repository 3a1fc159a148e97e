#include "bench/paper/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::bench {
namespace {

using ::testing::ElementsAre;

TEST(SweepTest, EachSystemIsMeasuredAtEachX) {
  System a = Ours(), b = Prism();
  a.name = "a";
  b.name = "b";
  const Swept swept = Sweep({"title", "x", "y", {1, 2}, {}, {}}, {a, b},
                            [](const System& s, double x) {
                              return Values{s.name == "a" ? x : 10 * x, 0};
                            });
  EXPECT_THAT(swept.of,
              ElementsAre(Line{{1, 0}, {2, 0}}, Line{{10, 0}, {20, 0}}));
  ASSERT_EQ(swept.panel.curves.size(), 2u);
  EXPECT_EQ(swept.panel.curves[1].name, "b");
  EXPECT_EQ(swept.panel.curves[1].y[1].mean, 10);
}

TEST(SweepTest, TheMostIsOverAllX) {
  const Line ours = {{3, 3}, {8, 8}, {5, 5}}, theirs = {{1, 1}, {4, 4}, {9, 9}};
  EXPECT_EQ(MostRatio(ours, theirs).mean, 3);
  EXPECT_EQ(MostDifference(ours, theirs).mean, 4);
  EXPECT_EQ(MostDifference({{1, 1}}, {{4, 4}}).mean, -3);
}

TEST(SweepTest, TheLeastIsWhereItIsFurthestBehind) {
  const Line ours = {{3, 3}, {8, 8}, {5, 5}}, theirs = {{1, 1}, {4, 4}, {9, 9}};
  EXPECT_EQ(LeastDifference(ours, theirs).mean, -4);
  EXPECT_NEAR(LeastRatio(ours, theirs).mean, 5. / 9, 1e-9);
}

TEST(SweepTest, HighestRateIsFoundFromBelow) {
  const double found =
      HighestRate(1, 1024, 30, [](double rate) { return rate <= 73; });
  EXPECT_LE(found, 73);
  EXPECT_NEAR(found, 73, 1e-3);
}

}  // namespace
}  // namespace fineserve::bench

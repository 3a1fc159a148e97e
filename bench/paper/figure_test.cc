
#include "bench/paper/figure.h"

#include <gtest/gtest.h>

#include <limits>

namespace fineserve::bench {
namespace {

TEST(VerdictTest, GainsAreJudgedByTheirInterval) {
  struct Case {
    const char* name;
    double paper;
    Interval ours;
    Verdict verdict;
  };
  const Case cases[] = {
      {"more than the paper", 2.2, {2.5, 0.1}, Verdict::kReproduced},
      {"reaches it by its interval", 2.2, {2.1, 0.2}, Verdict::kReproduced},
      {"less, but beyond chance", 2.2, {1.4, 0.1}, Verdict::kDirectionOnly},
      {"not beyond chance", 2.2, {1.1, 0.2}, Verdict::kNot},
      {"a wide interval reaches anything", 2.2, {1.9, 1}, Verdict::kNot},
      {"the other way round", 2.2, {0.7, 0.1}, Verdict::kNot},
      {"one seed counts as it is",
       2.2,
       {2.3, std::numeric_limits<double>::infinity()},
       Verdict::kReproduced},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Judge(Sense::kGain, c.paper, 1, c.ours), c.verdict) << c.name;
  }
}

TEST(VerdictTest, DifferencesHaveNoGainAtZero) {
  EXPECT_EQ(Judge(Sense::kGain, 8.87, 0, {0.5, 0.2}), Verdict::kDirectionOnly);
  EXPECT_EQ(Judge(Sense::kGain, 8.87, 1, {0.5, 0.2}), Verdict::kNot);
}

TEST(VerdictTest, AValueIsReproducedWithinAFifth) {
  EXPECT_EQ(Judge(Sense::kAbout, 100, 0, {81, 0}), Verdict::kReproduced);
  EXPECT_EQ(Judge(Sense::kAbout, 100, 0, {79, 0}), Verdict::kNot);
  EXPECT_EQ(Judge(Sense::kAbout, 100, 0, {79, 2}), Verdict::kReproduced);
  EXPECT_EQ(Judge(Sense::kAbout, 100, 0, {121, 0}), Verdict::kNot);
}

TEST(VerdictTest, TheSameThingOrNot) {
  EXPECT_EQ(Judge(Sense::kExact, 1, 1, {1, 0}), Verdict::kReproduced);
  EXPECT_EQ(Judge(Sense::kExact, 1, 1, {0.75, 0}), Verdict::kNot);
}

TEST(VerdictTest, AFigureIsAsGoodAsItsWorstComparisonThatCounts) {
  Figure f;
  EXPECT_EQ(f.verdict(), Verdict::kReproduced);
  const auto add = [&](double ours, bool counts) {
    Comparison c;
    c.paper = 2;
    c.ours = {ours, 0};
    c.counts = counts;
    f.comparisons.push_back(c);
  };
  add(3, true);
  add(0.5, false);
  EXPECT_EQ(f.verdict(), Verdict::kReproduced);
  add(1.5, true);
  EXPECT_EQ(f.verdict(), Verdict::kDirectionOnly);
  add(0.5, true);
  EXPECT_EQ(f.verdict(), Verdict::kNot);
}

}  // namespace
}  // namespace fineserve::bench

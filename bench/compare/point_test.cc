#include "bench/compare/point.h"

#include <gtest/gtest.h>

namespace fineserve::bench {
namespace {

using workload::End;
using workload::Outcome;

Outcome Done(double begin_s, double ttft_s) {
  Outcome o;
  o.end = End::kDone;
  o.begin_s = begin_s;
  o.first_token_s = o.end_s = begin_s + ttft_s;
  o.lengths = {10, 1};
  o.slo = {1, 0};
  return o;
}

TEST(SummaryFromTest, LeavesOutWhatBeganBefore) {
  const auto s =
      SummaryFrom(10, {Done(9.9, 5), Done(10, 0.25), Done(20, 2)}, 30);
  EXPECT_EQ(s.requests, 2u);
  EXPECT_EQ(s.attainment, 0.5);
  EXPECT_EQ(s.ttft_s.p50, 0.25);
  EXPECT_EQ(s.goodput, 1.0 / 20);
}

Point MakePoint(double attainment, double p50, double p90, double busy) {
  Point p;
  p.real.summary.attainment = 0.9;
  p.real.summary.ttft_s.p50 = 0.1;
  p.real.summary.ttft_s.p90 = 0.5;
  p.simulated.summary.attainment = attainment;
  p.simulated.summary.ttft_s.p50 = p50;
  p.simulated.summary.ttft_s.p90 = p90;
  p.host_busy = busy;
  return p;
}

TEST(PointTest, DifferencesHaveTheSignOfTooMuchHope) {
  EXPECT_NEAR(MakePoint(0.95, 0.1, 0.5, 0).AttainmentDifference(), 5, 1e-9);
  EXPECT_NEAR(MakePoint(0.85, 0.1, 0.5, 0).AttainmentDifference(), -5, 1e-9);
  EXPECT_NEAR(PercentOff(0.11, 0.1), 10, 1e-9);
}

bool Holds(const std::vector<Point>& points) {
  Report report("a test");
  Tell(points, &report);
  return report.AllClaimsHold();
}

TEST(TellTest, ClaimsTheBoundsOfThePointsThatCount) {
  EXPECT_TRUE(Holds({MakePoint(0.92, 0.11, 0.45, 0.5)}));
  EXPECT_FALSE(Holds({MakePoint(0.935, 0.1, 0.5, 0.5)}));
  EXPECT_FALSE(Holds({MakePoint(0.9, 0.116, 0.5, 0.5)}));
  EXPECT_FALSE(Holds({MakePoint(0.9, 0.1, 0.42, 0.5)}));
  EXPECT_TRUE(Holds({MakePoint(0.1, 9, 9, 0.81), MakePoint(0.9, 0.1, 0.5, 0)}))
      << "the host was too busy";
}

TEST(TellTest, ActivationsOfPointsThatCountAreClaimed) {
  Point point = MakePoint(0.92, 0.11, 0.45, 0.5);
  point.real.activations = 40;
  point.simulated.activations = 43;
  EXPECT_TRUE(Holds({point}));
  point.simulated.activations = 45;
  EXPECT_FALSE(Holds({point}));
}

}  // namespace
}  // namespace fineserve::bench

#include "tools/lab/workload/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace fineserve::workload {
namespace {

// Returns a request that begins at `begin`, gets its first token after `ttft`,
// and then four more, one every 0.1 s.
Outcome Done(double begin, double ttft, uint32_t input = 100) {
  Outcome o;
  o.end = End::kDone;
  o.begin_s = begin;
  o.first_token_s = begin + ttft;
  o.end_s = o.first_token_s + 0.4;
  o.lengths = {input, 5};
  o.slo = {1.0, 0.2};
  return o;
}

Outcome Ended(End end, double begin) {
  Outcome o = Done(begin, 0.1);
  o.end = end;
  return o;
}

TEST(OutcomeTest, TpotIsOfTheTokensAfterTheFirst) {
  EXPECT_NEAR(Done(1, 0.5).tpot_s(), 0.1, 1e-12);
  Outcome one = Done(1, 0.5);
  one.lengths.output = 1;
  EXPECT_EQ(one.tpot_s(), 0);
}

TEST(OutcomeTest, BothSlosMustHold) {
  EXPECT_TRUE(Done(1, 0.5).attained());
  EXPECT_FALSE(Done(1, 1.1).attained());
  Outcome slow = Done(1, 0.5);
  slow.end_s += 1;
  EXPECT_FALSE(slow.attained());
  slow.slo.tpot_s = 0;
  EXPECT_TRUE(slow.attained()) << "no pace was promised";
}

TEST(OutcomeTest, DropsAndFailuresAreMisses) {
  EXPECT_FALSE(Ended(End::kDropped, 0).attained());
  EXPECT_FALSE(Ended(End::kFailed, 0).attained());
}

TEST(QuantileTest, IsTheNearestRank) {
  std::vector<double> values(100);
  std::iota(values.begin(), values.end(), 1);
  EXPECT_EQ(Quantile(values, 0.5), 50);
  EXPECT_EQ(Quantile(values, 0.95), 95);
  EXPECT_EQ(Quantile(values, 0.999), 100);
  EXPECT_EQ(Quantile(values, 0), 1);
  EXPECT_EQ(Quantile({7}, 0.99), 7);
  EXPECT_EQ(Quantile({}, 0.5), 0);
}

TEST(SummaryTest, CountsAndRates) {
  const Summary s = Summarize({Done(0, 0.5), Done(1, 2.0),
                               Ended(End::kDropped, 2), Ended(End::kFailed, 3)},
                              10);
  EXPECT_EQ(s.requests, 4u);
  EXPECT_EQ(s.done, 2u);
  EXPECT_EQ(s.dropped, 1u);
  EXPECT_EQ(s.failed, 1u);
  EXPECT_DOUBLE_EQ(s.attainment, 0.25);
  EXPECT_DOUBLE_EQ(s.requests_per_second, 0.2);
  EXPECT_DOUBLE_EQ(s.goodput, 0.1);
  EXPECT_DOUBLE_EQ(s.decode_tokens_per_second, 0.8) << "four each, not five";
  EXPECT_DOUBLE_EQ(s.ttft_s.p50, 0.5);
  EXPECT_DOUBLE_EQ(s.ttft_s.p99, 2.0);
}

TEST(SummaryTest, RequestWithoutATokenWaitsForEver) {
  const Summary s =
      Summarize({Done(0, 0.5), Done(1, 0.7), Ended(End::kDropped, 2)}, 10);
  EXPECT_DOUBLE_EQ(s.all_ttft_s.p50, 0.7);
  EXPECT_TRUE(std::isinf(s.all_ttft_s.p90));
  EXPECT_DOUBLE_EQ(s.ttft_s.p90, 0.7);
}

TEST(SummaryTest, EmptySummaryIsEmpty) {
  const Summary s = Summarize({}, 0);
  EXPECT_EQ(s.attainment, 0);
  EXPECT_EQ(s.requests_per_second, 0);
}

TEST(SummaryTest, IdleTimeIsNotCountedTwiceOrAtAll) {
  // 0 … 0.9, 0.2 … 1.1 and 5 … 5.9: 1.1 + 0.9 s.
  const std::vector<Outcome> outcomes = {Done(5, 0.5), Done(0, 0.5),
                                         Done(0.2, 0.5)};
  EXPECT_NEAR(BusySeconds(outcomes), 2.0, 1e-9);
  EXPECT_NEAR(Summarize(outcomes, 100).idle_free_tokens_per_second, 12 / 2.0,
              1e-9);
}

TEST(DecileTest, ShortestPromptsFirst) {
  std::vector<Outcome> outcomes;
  for (uint32_t i = 0; i < 40; ++i) {
    // The longest tenth misses.
    outcomes.push_back(Done(i, i < 36 ? 0.5 : 2.0, 1 + i));
  }
  std::swap(outcomes[0], outcomes[39]);
  const auto deciles = AttainmentByLengthDecile(outcomes);
  ASSERT_EQ(deciles.size(), 10u);
  EXPECT_EQ(deciles[0], 1);
  EXPECT_EQ(deciles[8], 1);
  EXPECT_EQ(deciles[9], 0);
  EXPECT_TRUE(AttainmentByLengthDecile({Done(0, 1)}).empty());
}

TEST(SloBasisTest, QuantileOfTheBaselineTimesTheScale) {
  std::vector<Outcome> baseline;
  for (int i = 1; i <= 100; ++i) baseline.push_back(Done(0, i * 0.01));
  baseline.push_back(Ended(End::kDropped, 0));
  const auto ttft = [&](const char* name) {
    return SloFrom(*FindSloBasis(name), baseline, 2).ttft_s;
  };
  EXPECT_NEAR(ttft("fs"), 2 * 0.95, 1e-9);
  EXPECT_NEAR(ttft("fs13"), 2 * 0.90, 1e-9);
  EXPECT_NEAR(ttft("prism"), 2 * 0.95, 1e-9);
  EXPECT_NEAR(ttft("kunserve"), 2 * 0.50, 1e-9);
  EXPECT_EQ(SloFrom(*FindSloBasis("fs"), baseline, 2).tpot_s, 0);
  EXPECT_NEAR(SloFrom(*FindSloBasis("prism"), baseline, 2).tpot_s, 0.2, 1e-9);
  EXPECT_EQ(FindSloBasis("mine"), nullptr);
}

}  // namespace
}  // namespace fineserve::workload

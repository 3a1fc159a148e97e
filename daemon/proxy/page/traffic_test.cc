#include "daemon/proxy/page/traffic.h"

#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

constexpr uint64_t kMsNs = 1'000'000;

class TrafficTest : public ::testing::Test {
 protected:
  TrafficTest() { clock_.AdvanceNs(kMsNs); }

  // Records a stream of model "m" whose first token comes after `ttft_ms`.
  void Stream(uint64_t ttft_ms) {
    Journey journey(&traffic_, &clock_);
    journey.IsFor("m", 100'000);
    journey.Asks();
    journey.IsDecided(true, false);
    journey.IsSent();
    clock_.AdvanceNs(ttft_ms * kMsNs);
    journey.HasFirstToken();
  }
  Traffic::Figures Now() const { return traffic_.Of("m", clock_.NowNs()); }

  ManualClock clock_;
  Traffic traffic_;
};

TEST_F(TrafficTest, ARequestWaitsThenRuns) {
  {
    Journey journey(&traffic_, &clock_);
    journey.IsFor("m", 0);
    journey.Asks();
    EXPECT_EQ(Now().waiting, 1);
    journey.IsDecided(true, true);
    journey.IsSent();
    EXPECT_EQ(Now().waiting, 0);
    EXPECT_EQ(Now().running, 1);
  }
  EXPECT_EQ(Now().running, 0);
  EXPECT_EQ(traffic_.unscheduled(), 1u);
}

TEST_F(TrafficTest, TornDownRequestsNoLongerCount) {
  {
    Journey waits(&traffic_, &clock_);
    waits.IsFor("m", 0);
    waits.Asks();
    Journey runs(&traffic_, &clock_);
    runs.IsFor("m", 0);
    runs.IsSent();
    runs.IsSent();
    EXPECT_EQ(Now().waiting, 1);
    EXPECT_EQ(Now().running, 1);
  }
  EXPECT_EQ(Now().waiting, 0);
  EXPECT_EQ(Now().running, 0);
}

TEST_F(TrafficTest, OnTimeIsWithinTheSloAndARefusalIsLate) {
  Stream(100);
  Stream(101);
  {
    Journey refused(&traffic_, &clock_);
    refused.IsFor("m", 100'000);
    refused.Asks();
    refused.IsDecided(false, false);
  }
  EXPECT_EQ(Now().on_time, 1u);
  EXPECT_EQ(Now().late, 2u);
  EXPECT_EQ(Now().first_tokens, 2u);
}

TEST_F(TrafficTest, QuantilesAreOfTheFirstTokensOfTheWindow) {
  Stream(5000);
  clock_.AdvanceNs(Traffic::kWindowNs);
  for (uint64_t ms = 1; ms <= 100; ++ms) Stream(ms);
  EXPECT_EQ(Now().first_tokens, 100u);
  EXPECT_EQ(Now().ttft_p50_ns, 51 * kMsNs);
  EXPECT_EQ(Now().ttft_p99_ns, 100 * kMsNs);
  for (size_t n = 0; n < Traffic::kMostOutcomes; ++n) Stream(7);
  EXPECT_EQ(Now().first_tokens, Traffic::kMostOutcomes);
  EXPECT_EQ(Now().ttft_p99_ns, 7 * kMsNs) << "the newest replace the oldest";
}

TEST_F(TrafficTest, ARequestForNoModelLeavesNothing) {
  Journey journey(&traffic_, &clock_);
  journey.Asks();
  journey.IsDecided(false, false);
  EXPECT_EQ(Now().late, 0u);
}

}  // namespace
}  // namespace fineserve::proxy

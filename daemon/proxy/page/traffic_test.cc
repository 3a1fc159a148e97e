#include "daemon/proxy/page/traffic.h"

#include <gtest/gtest.h>

namespace fineserve::proxy {
namespace {

constexpr uint64_t kMsNs = 1'000'000;

class TrafficTest : public ::testing::Test {
 protected:
  TrafficTest() { clock_.AdvanceNs(kMsNs); }

  // A stream of model "m" whose first token comes after so many ms.
  void Stream(uint64_t ttft_ms) {
    Journey journey(&traffic_, &clock_, "id");
    journey.IsFor("m", true, 100'000);
    journey.Asks();
    journey.IsDecided(true, false);
    journey.IsSentTo("e");
    clock_.AdvanceNs(ttft_ms * kMsNs);
    journey.BeginsAnswer(true);
    journey.Ends(200);
  }
  Traffic::Figures Now() const { return traffic_.Of("m", clock_.NowNs()); }

  ManualClock clock_;
  Traffic traffic_;
};

TEST_F(TrafficTest, ARequestWaitsThenRunsThenIsPast) {
  {
    Journey journey(&traffic_, &clock_, "r-1");
    journey.IsFor("m", false, 0);
    clock_.AdvanceNs(2 * kMsNs);
    journey.Asks();
    EXPECT_EQ(Now().waiting, 1);
    clock_.AdvanceNs(3 * kMsNs);
    journey.IsDecided(true, true);
    journey.IsSentTo("e");
    EXPECT_EQ(Now().waiting, 0);
    EXPECT_EQ(Now().running, 1);
    clock_.AdvanceNs(4 * kMsNs);
    journey.BeginsAnswer(false);
    clock_.AdvanceNs(5 * kMsNs);
    journey.LeavesEngine();
    journey.Ends(200);
    EXPECT_TRUE(traffic_.past().empty());
  }
  EXPECT_EQ(Now().running, 0);
  EXPECT_EQ(traffic_.unscheduled(), 1u);
  ASSERT_EQ(traffic_.past().size(), 1u);
  const PastRequest& past = traffic_.past()[0];
  EXPECT_EQ(past.id, "r-1");
  EXPECT_EQ(past.engine, "e");
  EXPECT_EQ(past.asked_ns - past.arrived_ns, 2 * kMsNs);
  EXPECT_EQ(past.decided_ns - past.asked_ns, 3 * kMsNs);
  EXPECT_EQ(past.first_ns - past.decided_ns, 4 * kMsNs);
  EXPECT_EQ(past.ended_ns - past.first_ns, 5 * kMsNs);
}

TEST_F(TrafficTest, WhoeverIsTornDownCountsNoMore) {
  {
    Journey waits(&traffic_, &clock_, "w");
    waits.IsFor("m", false, 0);
    waits.Asks();
    Journey runs(&traffic_, &clock_, "r");
    runs.IsFor("m", false, 0);
    runs.IsSentTo("e");
    runs.IsSentTo("f");
    EXPECT_EQ(Now().waiting, 1);
    EXPECT_EQ(Now().running, 1);
  }
  EXPECT_EQ(Now().waiting, 0);
  EXPECT_EQ(Now().running, 0);
  EXPECT_TRUE(traffic_.past().empty()) << "no client got an answer";
}

TEST_F(TrafficTest, OnTimeIsWithinTheSloAndARefusalIsLate) {
  Stream(100);
  Stream(101);
  {
    Journey refused(&traffic_, &clock_, "id");
    refused.IsFor("m", true, 100'000);
    refused.Asks();
    refused.IsDecided(false, false);
    refused.Ends(429);
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

TEST_F(TrafficTest, OnlyTheLastRequestsAreKept) {
  for (size_t n = 0; n < Traffic::kMostPast + 3; ++n) Stream(n);
  ASSERT_EQ(traffic_.past().size(), Traffic::kMostPast);
  const PastRequest& oldest = traffic_.past().front();
  EXPECT_EQ(oldest.first_ns - oldest.arrived_ns, 3 * kMsNs);
}

TEST_F(TrafficTest, ARequestForNoModelLeavesNothing) {
  {
    Journey journey(&traffic_, &clock_, "id");
    journey.Ends(404);
  }
  EXPECT_TRUE(traffic_.past().empty());
}

}  // namespace
}  // namespace fineserve::proxy

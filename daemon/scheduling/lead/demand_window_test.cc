#include "daemon/scheduling/lead/demand_window.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/contract/wire/message.h"

namespace fineserve::admission {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

DemandCounts Arrived(uint64_t n) { return {n, 100 * n, n, 10 * n, n, 0}; }

TEST(DemandWindowTest, RateIsThatOfTheLastWindow) {
  DemandWindow window(60);
  for (uint64_t t = 0; t <= 100; ++t) {
    const uint64_t arrived = t <= 40 ? 0 : 3 * (t - 40);
    window.Add("gpu", t * kSecond, {{"chat", Arrived(arrived)}});
  }
  const Demand d = window.Of("chat");
  EXPECT_DOUBLE_EQ(d.seconds, 60);
  EXPECT_DOUBLE_EQ(d.rate, 3);
  EXPECT_DOUBLE_EQ(d.prompt_tokens, 100);
  EXPECT_DOUBLE_EQ(d.output_tokens, 10);
  EXPECT_DOUBLE_EQ(d.attainment, 1);
}

TEST(DemandWindowTest, OneSampleTellsNothing) {
  DemandWindow window(60);
  window.Add("gpu", kSecond, {{"chat", Arrived(1000)}});
  EXPECT_EQ(window.Of("chat").seconds, 0);
  EXPECT_EQ(window.Reach(), 0);
}

TEST(DemandWindowTest, IdleModelIsSeenToBeIdle) {
  DemandWindow window(60);
  window.Add("gpu", 0, {{"chat", Arrived(7)}});
  window.Add("gpu", 5 * kSecond, {{"chat", Arrived(7)}});
  EXPECT_EQ(window.Of("chat").seconds, 5);
  EXPECT_EQ(window.Of("chat").rate, 0);
  EXPECT_LT(window.Of("chat").attainment, 0);
}

// Both daemons hear the same proxies; one of them began later.
TEST(DemandWindowTest, DaemonsAreNotAddedUp) {
  DemandWindow window(60);
  for (uint64_t t = 0; t <= 20; ++t) {
    window.Add("one", t * kSecond, {{"chat", Arrived(2 * t)}});
    window.Add("other", t * kSecond, {{"chat", Arrived(t)}});
  }
  EXPECT_DOUBLE_EQ(window.Of("chat").rate, 2);
}

TEST(DemandWindowTest, CountsThatWentBackAreANewDaemons) {
  DemandWindow window(60);
  window.Add("gpu", 0, {{"chat", Arrived(1000)}});
  window.Add("gpu", 5 * kSecond, {{"chat", Arrived(5)}});
  window.Add("gpu", 10 * kSecond, {{"chat", Arrived(10)}});
  EXPECT_DOUBLE_EQ(window.Of("chat").rate, 1);
}

// Such a silence occurs, for example, when no proxy runs for ten minutes.
TEST(DemandWindowTest, WindowBeginsAgainAfterASilence) {
  DemandWindow window(60);
  for (uint64_t t = 0; t <= 60; ++t) {
    window.Add("gpu", t * kSecond, {{"chat", Arrived(6 * t)}});
  }
  for (uint64_t t = 660; t <= 670; ++t) {
    window.Add("gpu", t * kSecond, {{"chat", Arrived(360 + 6 * (t - 660))}});
  }
  EXPECT_DOUBLE_EQ(window.Of("chat").rate, 6);
  EXPECT_DOUBLE_EQ(window.Reach(), 10);
}

TEST(DemandWindowTest, SilentDaemonIsForgotten) {
  DemandWindow window(60);
  window.Add("dead", 0, {{"chat", Arrived(0)}});
  window.Add("dead", kSecond, {{"chat", Arrived(50)}});
  for (uint64_t t = 0; t <= 12; ++t) {
    window.Add("live", t * kSecond, {{"chat", Arrived(t)}});
  }
  EXPECT_DOUBLE_EQ(window.Of("chat").rate, 1);
}

// Each request has 10 prompt tokens and was answered on time.
wire::HelloT HelloOf(uint64_t arrived, const std::string& model = "m") {
  wire::HelloT hello;
  hello.demand.push_back(std::make_unique<wire::ModelDemandT>());
  wire::ModelDemandT& demand = *hello.demand[0];
  demand.model = model;
  demand.arrived = demand.answered = demand.on_time = arrived;
  demand.prompt_tokens = 10 * arrived;
  demand.output_tokens = 5 * arrived;
  return hello;
}

class DemandTotalsTest : public ::testing::Test {
 protected:
  std::vector<wire::ModelDemandT> Totals() const {
    wire::ReportT report;
    totals_.Tell(&report);
    std::vector<wire::ModelDemandT> all;
    for (const auto& demand : report.demand) all.push_back(*demand);
    return all;
  }
  uint64_t Arrived() const {
    const auto all = Totals();
    return all.empty() ? 0 : all[0].arrived;
  }

  DemandTotals totals_{{"m", "n"}};
};

TEST_F(DemandTotalsTest, CountsOfAProxyBeforeItsGreetingAreIgnored) {
  totals_.Count("p", HelloOf(1000));
  EXPECT_TRUE(Totals().empty());
  totals_.Count("p", HelloOf(1003));
  totals_.Count("p", HelloOf(1003));
  totals_.Count("p", HelloOf(1004));
  const auto all = Totals();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].model, "m");
  EXPECT_EQ(all[0].arrived, 4u);
  EXPECT_EQ(all[0].prompt_tokens, 40u);
  EXPECT_EQ(all[0].answered, 4u);
  EXPECT_EQ(all[0].output_tokens, 20u);
  EXPECT_EQ(all[0].on_time, 4u);
  EXPECT_EQ(all[0].late, 0u);
}

TEST_F(DemandTotalsTest, ModelThatAProxyNamesForTheFirstTimeBeginsAtNothing) {
  totals_.Count("p", wire::HelloT());
  totals_.Count("p", HelloOf(3));
  EXPECT_EQ(Arrived(), 3u);
}

TEST_F(DemandTotalsTest, ProxiesAddUpAndEachHasItsOwnBeginning) {
  totals_.Count("p", HelloOf(10));
  totals_.Count("q", HelloOf(500));
  totals_.Count("p", HelloOf(12));
  totals_.Count("q", HelloOf(503));
  EXPECT_EQ(Arrived(), 5u);
}

TEST_F(DemandTotalsTest, CountThatFellBeginsAgainAndTakesNothingAway) {
  totals_.Count("p", HelloOf(10));
  totals_.Count("p", HelloOf(15));
  totals_.Count("p", HelloOf(2));
  EXPECT_EQ(Arrived(), 5u);
  totals_.Count("p", HelloOf(4));
  EXPECT_EQ(Arrived(), 7u);
  wire::HelloT mixed = HelloOf(9);
  mixed.demand[0]->late = 3;
  totals_.Count("p", mixed);
  mixed = HelloOf(99);
  mixed.demand[0]->late = 2;
  totals_.Count("p", mixed);
  EXPECT_EQ(Arrived(), 12u) << "one of its counts fell";
}

TEST_F(DemandTotalsTest, PeerThatWasForgottenBeginsAgain) {
  totals_.Count("p", HelloOf(10));
  totals_.Count("p", HelloOf(15));
  totals_.Forget("p");
  totals_.Count("p", HelloOf(40));
  EXPECT_EQ(Arrived(), 5u);
}

TEST_F(DemandTotalsTest, TotalsStopAtTheLargestNumber) {
  wire::HelloT huge = HelloOf(0);
  huge.demand[0]->arrived = UINT64_MAX;
  for (const std::string peer : {"p", "q"}) {
    totals_.Count(peer, HelloOf(0));
    totals_.Count(peer, huge);
  }
  EXPECT_EQ(Arrived(), UINT64_MAX);
}

TEST_F(DemandTotalsTest, ModelsOutsideTheFleetAreIgnored) {
  totals_.Count("p", wire::HelloT());
  for (int i = 0; i < 100; ++i) {
    totals_.Count("p", HelloOf(1, "other" + std::to_string(i)));
  }
  EXPECT_TRUE(Totals().empty());
}

TEST_F(DemandTotalsTest, ModelNamedTwiceInOneGreetingCountsOnce) {
  totals_.Count("p", wire::HelloT());
  wire::HelloT twice = HelloOf(3);
  twice.demand.push_back(
      std::make_unique<wire::ModelDemandT>(*twice.demand[0]));
  totals_.Count("p", twice);
  EXPECT_EQ(Arrived(), 3u);
}

}  // namespace

}  // namespace fineserve::admission

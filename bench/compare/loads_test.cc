#include "bench/compare/loads.h"

#include <gtest/gtest.h>

#include "bench/compare/compared_fleet.h"

namespace fineserve::bench {
namespace {

using Fleet = ComparedFleet;

TEST(LoadOfTest, CountsWholeBlocksForTheTimeOfTheAnswer) {
  workload::Trace trace;
  trace.models = Fleet::Models();
  // The request takes 7 blocks of 16 tokens of 2 KiB, one prefill step and nine
  // decode steps.
  trace.arrivals = {{0, 1, {91, 10}}};
  const double bytes = 7 * 16 * 2 * 1024;
  const double seconds = 1e-6 * (25'000 + 91 * 50 + 9 * 25'060);
  const double pools = 2.0 * (80 << 20);
  EXPECT_DOUBLE_EQ(LoadOf(trace, 3), bytes * seconds / (3 * pools));
}

TEST(SteadyTest, HasTheLoadAndAllModels) {
  const workload::Trace trace = Steady({{100, 50}, {9000, 900}}, 1.4, 4000, 1);
  EXPECT_NEAR(LoadOf(trace, 4000), 1.4, 0.02);
  EXPECT_EQ(trace.models, Fleet::Models());
  size_t of_model[4] = {};
  for (const workload::Arrival& a : trace.arrivals) {
    ++of_model[a.model];
    EXPECT_LE(a.lengths.input, Fleet::kMostInput);
    EXPECT_LE(a.lengths.output, Fleet::kMostOutput);
  }
  const double each = static_cast<double>(trace.arrivals.size()) / 4;
  for (const size_t count : of_model) {
    EXPECT_NEAR(static_cast<double>(count), each, 0.02 * each);
  }
}

// Returns ten requests within the first second of every ten seconds.
workload::Trace TenAtOnce(double seconds) {
  workload::Trace real;
  real.models = {"real"};
  for (double at = 0; at < seconds; at += 10) {
    for (int i = 0; i < 10; ++i) real.arrivals.push_back({at, 0, {100, 50}});
  }
  return real;
}

TEST(SteadyTest, ReplicasOfFewerModelsHaveTheirLoad) {
  const FleetShape shape = {EnginePlacement::kReplicas, 4, 3};
  const workload::Trace trace =
      Steady({{100, 50}, {9000, 900}}, 0.7, 2000, 1, shape);
  EXPECT_NEAR(LoadOf(trace, 2000, shape), 0.7, 0.02);
  EXPECT_EQ(trace.models.size(), 3u);
  const auto engines = Fleet::Engines(shape);
  ASSERT_EQ(engines.size(), 12u);
  size_t on_gpu[4] = {};
  for (const ComparedEngine& engine : engines) ++on_gpu[engine.gpu];
  for (const size_t count : on_gpu) EXPECT_EQ(count, 3u);
}

TEST(BurstyTest, HasTheLoadAndThePattern) {
  const workload::Trace trace = Bursty(TenAtOnce(4001), 0.7, 1000, 1);
  EXPECT_NEAR(LoadOf(trace, 1000), 0.7, 0.03);
  for (const workload::Arrival& a : trace.arrivals) {
    EXPECT_LT(a.at_s - 10 * static_cast<int>(a.at_s / 10), 1) << a.at_s;
  }
}

TEST(BurstyTest, EachModelGetsAnotherPart) {
  workload::Trace real = TenAtOnce(4001);
  for (workload::Arrival& a : real.arrivals) {
    a.lengths.input = 1 + static_cast<uint32_t>(a.at_s / 1000);
  }
  const workload::Trace trace = Bursty(real, 0.5, 1000, 1);
  ASSERT_FALSE(trace.arrivals.empty());
  for (const workload::Arrival& a : trace.arrivals) {
    EXPECT_EQ(a.lengths.input, a.model + 1);
  }
}

TEST(BusiestTest, ModelsThatAreAskedMostInTheWindowComeFirst) {
  workload::Trace real;
  real.models = {"early", "rare", "often"};
  for (double at = 0; at < 100; ++at) real.arrivals.push_back({at, 0, {9, 9}});
  for (double at = 100; at < 200; ++at) {
    real.arrivals.push_back({at, 2, {30, 9}});
    if (at < 110) real.arrivals.push_back({at, 1, {20, 9}});
  }
  FleetShape shape;
  shape.models = 2;
  const double load = LoadOf(Busiest(real, 100, 1, 100, 1, shape), 100, shape);
  EXPECT_NEAR(load, 1, 0.1);
  for (const auto& a : Busiest(real, 100, 0.1, 100, 1, shape).arrivals) {
    EXPECT_EQ(a.lengths.input, a.model == 0 ? 30u : 20u);
  }
}

}  // namespace
}  // namespace fineserve::bench

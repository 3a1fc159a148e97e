#include "tools/lab/sim/overload/cluster.h"

#include <gtest/gtest.h>

#include <random>

namespace fineserve::sim {
namespace {

using workload::Trace;

constexpr uint64_t kMiB = 1 << 20;
constexpr Overload kAll[] = {Overload::kRecompute, Overload::kPipeline,
                             Overload::kSwap,      Overload::kMigrate,
                             Overload::kMerge,     Overload::kLend};

// Two replicas of 20,000 tokens of KV and 8,000 tokens' worth of weights.
ClusterSetup Two(Overload overload) {
  ClusterSetup s;
  s.overload = overload;
  s.replicas = 2;
  s.step = {{{1, 20e3}, {128, 24e3}, {2048, 200e3}}, .005, .1};
  s.token_bytes = kMiB / 5;
  s.kv_bytes = 20'000 * s.token_bytes;
  s.weight_bytes = 8000 * s.token_bytes;
  s.activation_bytes = 10'240;
  s.network = 25e3;
  s.host_link = 25e3;
  s.domain = 2;
  s.terms.parts.assign(16, {s.weight_bytes / 16, s.weight_bytes / 16, 1. / 16});
  s.terms.link_bytes_per_us = 300e3;
  s.terms.slo_ttft = 1'000'000;
  s.terms.slo_tpot = 200'000;
  return s;
}

// A burst that asks for more than both replicas have.
Trace Burst(uint64_t seed, int requests = 120) {
  std::mt19937_64 random(seed);
  Trace trace;
  trace.models = {"m"};
  for (int i = 0; i < requests; ++i) {
    trace.arrivals.push_back({i * .05,
                              0,
                              {static_cast<uint32_t>(100 + random() % 900),
                               static_cast<uint32_t>(1 + random() % 300)}});
  }
  return trace;
}

double P99(const ClusterResult& r) {
  std::vector<double> ttft;
  for (const workload::Outcome& o : r.outcomes) ttft.push_back(o.ttft_s());
  return workload::Quantile(ttft, .99);
}

TEST(ClusterPropertyTest, EveryRequestIsAnsweredInOrderOfTime) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const Overload overload : kAll) {
      SCOPED_TRACE(testing::Message()
                   << "seed " << seed << ", " << static_cast<int>(overload));
      const ClusterResult r = RunCluster(Two(overload), Burst(seed));
      ASSERT_EQ(r.outcomes.size(), 120u);
      for (const workload::Outcome& o : r.outcomes) {
        ASSERT_EQ(o.end, workload::End::kDone);
        ASSERT_GT(o.first_token_s, o.begin_s);
        ASSERT_GE(o.end_s, o.first_token_s);
      }
    }
  }
}

TEST(ClusterTest, WithoutPressureAllReplicasServeAlike) {
  const double vllm = P99(RunCluster(Two(Overload::kRecompute), Burst(1, 10)));
  for (const Overload o : {Overload::kSwap, Overload::kMigrate,
                           Overload::kMerge, Overload::kLend}) {
    EXPECT_DOUBLE_EQ(P99(RunCluster(Two(o), Burst(1, 10))), vllm);
  }
}

TEST(ClusterTest, WeightsThatBecomeKvShortenTheQueue) {
  const double vllm = P99(RunCluster(Two(Overload::kRecompute), Burst(1)));
  const ClusterResult merged = RunCluster(Two(Overload::kMerge), Burst(1));
  const ClusterResult lent = RunCluster(Two(Overload::kLend), Burst(1));
  EXPECT_GT(merged.drops, 0u);
  EXPECT_GT(merged.restores, 0u);
  EXPECT_GT(lent.drops, 0u);
  EXPECT_GT(lent.restores, 0u);
  EXPECT_LT(P99(merged), vllm);
  EXPECT_LT(P99(lent), vllm);
}

TEST(ClusterTest, KvInTheWayOfWeightsDelaysARestoration) {
  ClusterSetup setup = Two(Overload::kMerge);
  const ClusterResult fast = RunCluster(setup, Burst(1));
  setup.memory = 100;
  const ClusterResult slow = RunCluster(setup, Burst(1));
  EXPECT_GT(slow.dropped_share, fast.dropped_share);
}

TEST(ClusterTest, WithoutRestorationWeightsStayDropped) {
  for (const Overload o : {Overload::kMerge, Overload::kLend}) {
    ClusterSetup setup = Two(o);
    setup.restores = false;
    const ClusterResult r = RunCluster(setup, Burst(1));
    EXPECT_EQ(r.restores, 0u);
    EXPECT_DOUBLE_EQ(r.dropped.back(),
                     static_cast<double>(r.most_dropped_bytes));
    EXPECT_EQ(r.dropped.size(), r.used.size());
  }
}

TEST(ClusterTest, WithoutPeerAccessNothingIsLentAndTheReasonIsThere) {
  ClusterSetup apart = Two(Overload::kLend);
  apart.domain = 1;
  const ClusterResult r = RunCluster(apart, Burst(1));
  EXPECT_EQ(r.drops, 0u);
  EXPECT_EQ(r.most_dropped_bytes, 0u);
  EXPECT_GT(r.refused.at(overload::Text(overload::Why::kNoPeerAccess)), 0u);
  EXPECT_DOUBLE_EQ(P99(r),
                   P99(RunCluster(Two(Overload::kRecompute), Burst(1))));
}

TEST(ClusterTest, ActivationsThatWaitForTheExchangeComeLater) {
  ClusterSetup slow = Two(Overload::kMerge);
  slow.network /= 20;
  ClusterSetup plain = slow;
  plain.coordinated = false;
  EXPECT_LT(P99(RunCluster(slow, Burst(1))), P99(RunCluster(plain, Burst(1))));
}

}  // namespace
}  // namespace fineserve::sim

#include "tools/lab/sim/fleet/run.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tools/lab/workload/arrivals.h"

namespace fineserve::sim {
namespace {

// Sanitizers look for other errors. With them, the books are not compared at
// each event, fewer runs are made, and purely statistical checks are left out.
#if defined(FINESERVE_SANITIZED)
constexpr bool kChecks = false;
constexpr uint64_t kSeeds = 1;
#else
constexpr bool kChecks = true;
constexpr uint64_t kSeeds = 6;
#endif

// Two models of 8B, FP16 and FP8, on one GPU. A token takes 4 KiB and 2 KiB, so
// that a slab of 2 MiB holds 512 and 1,024 tokens.
config::Fleet TwoModels(const std::string& policy = "fineserve") {
  config::Fleet fleet;
  fleet.policy = policy;
  for (const char* name : {"fp16", "fp8"}) {
    config::FleetModel m;
    m.name = name;
    m.slo_ttft_ms = 1000;
    m.max_batch = 64;
    m.kv_token_bytes = m.name == "fp16" ? 4096 : 2048;
    m.profile = config::StepProfile{8000, 40, 60};
    fleet.models.push_back(m);
    fleet.engines.push_back({m.name + "-a", m.name, "127.0.0.1", 1, "GPU-1"});
  }
  return fleet;
}

Site SiteOf(uint64_t pool_mib) {
  Site site;
  site.pool_bytes = pool_mib << 20;
  site.slab_bytes = 2 << 20;
  site.pool.fill_us = 50;
  for (const char* name : {"fp16", "fp8"}) {
    site.models[name].longest_tokens = 3000;
  }
  return site;
}

workload::Trace Load(double per_second, double seconds, uint64_t seed) {
  return workload::Poisson(
      {{"fp16", per_second / 2}, {"fp8", per_second / 2}}, seconds,
      {{400, 100}, {150, 300}, {700, 40}, {2000, 100}}, seed);
}

RunResult RunOf(const World& world, const workload::Trace& trace,
                RunOptions options = {}) {
  return *Run(world, trace, *ModelsOf(world, trace), options);
}

std::string TextWithCounters(const RunResult& r) {
  std::string text;
  for (const workload::Outcome& o : r.outcomes) {
    text += std::to_string(static_cast<int>(o.end)) + " " +
            std::to_string(o.first_token_s) + " " + std::to_string(o.end_s) +
            "\n";
  }
  for (const Gpu::Counters& c : r.gpus) {
    text += std::to_string(c.preemptions) + " " + std::to_string(c.tokens) +
            " " + std::to_string(c.steps) + " " +
            std::to_string(c.slabs_leased) + " " +
            std::to_string(c.slabs_asked_back) + "\n";
  }
  return text;
}

TEST(SimRunTest, EveryRequestEndsOnceAndTokensAreConserved) {
  for (const char* policy : {"fineserve", "moore-hodgson", "fcfs"}) {
    const World world = *MakeWorld(TwoModels(policy), SiteOf(48));
    const workload::Trace trace = Load(14, 40, 1);
    RunOptions options;
    options.check = kChecks;
    const RunResult r = RunOf(world, trace, options);
    ASSERT_EQ(r.outcomes.size(), trace.arrivals.size());
    uint64_t generated = 0;
    for (size_t i = 0; i < r.outcomes.size(); ++i) {
      const workload::Outcome& o = r.outcomes[i];
      ASSERT_NE(o.end, workload::End::kFailed) << policy << ", request " << i;
      if (o.end != workload::End::kDone) continue;
      ASSERT_EQ(o.lengths.output, trace.arrivals[i].lengths.output);
      ASSERT_LT(o.begin_s, o.first_token_s);
      ASSERT_LE(o.first_token_s, o.end_s);
      generated += o.lengths.output;
    }
    EXPECT_EQ(r.cut, 0u);
    EXPECT_EQ(r.gpus[0].tokens, generated) << policy;
  }
}

TEST(SimRunTest, RunsOfStepsComeOutAsStepByStep) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world = *MakeWorld(TwoModels(), SiteOf(seed % 2 == 0 ? 32 : 96));
    const workload::Trace trace = Load(4.0 + 3.0 * seed, 20, seed);
    const RunResult by_run = RunOf(world, trace);
    world.gpus[0].most_steps = 1;
    const RunResult by_step = RunOf(world, trace);
    ASSERT_EQ(TextWithCounters(by_run), TextWithCounters(by_step))
        << "seed " << seed;
  }
}

TEST(SimRunTest, AnotherSeedGivesAnotherResult) {
  const World world = *MakeWorld(TwoModels(), SiteOf(48));
  const workload::Trace trace = Load(10, 10, 1);
  EXPECT_EQ(TextWithCounters(RunOf(world, trace)),
            TextWithCounters(RunOf(world, trace)));
  EXPECT_NE(TextWithCounters(RunOf(world, trace)),
            TextWithCounters(RunOf(world, Load(10, 10, 2))));
}

// Answers are longer than the scheduler can expect, because no client states
// their length.
TEST(SimRunTest, TightPoolPassesSlabsOnAndPreemptsAndStillAllEnd) {
  workload::Trace trace = workload::Poisson(
      {{"fp16", 3}, {"fp8", 3}}, 20, {{100, 20}, {100, 2500}, {1200, 60}}, 3);
  // One model has the pool at first, and then the other.
  for (workload::Arrival& a : trace.arrivals) a.model = a.at_s > 10;
  const World world = *MakeWorld(TwoModels("fcfs"), SiteOf(30));
  RunOptions options;
  options.check = kChecks;
  options.tells_output = false;
  const RunResult r = RunOf(world, trace, options);
  for (const workload::Outcome& o : r.outcomes) {
    EXPECT_EQ(o.end, workload::End::kDone);
  }
  EXPECT_GT(r.gpus[0].preemptions, 0u);
  EXPECT_GT(r.gpus[0].slabs_asked_back, 0u);
  EXPECT_GT(r.gpus[0].slabs_returned, 0u);
}

#if !defined(FINESERVE_SANITIZED)
// The engine is an M/D/1 queue: each prompt is one step of 48 ms, and nothing
// is decoded. Its mean wait is ρ · D / (2 · (1 − ρ)) (Pollaczek–Khinchine).
TEST(SimRunTest, OneEngineWaitsAsAQueueOfConstantServiceDoes) {
  for (const double load : {0.4, 0.7}) {
    config::Fleet fleet = TwoModels("fcfs");
    for (config::FleetModel& m : fleet.models) m.chunk_tokens = 1000;
    const World world = *MakeWorld(fleet, SiteOf(96));
    const double service_s = 0.048;
    const workload::Trace trace =
        workload::Poisson({{"fp16", load / service_s}}, 1500, {{1000, 1}}, 11);
    double sum = 0;
    for (const workload::Outcome& o : RunOf(world, trace).outcomes) {
      sum += o.ttft_s();
    }
    const double mean = sum / static_cast<double>(trace.arrivals.size());
    const double expected = service_s + load * service_s / (2 * (1 - load));
    EXPECT_NEAR(mean, expected, 0.06 * expected) << "load " << load;
  }
}
#endif

TEST(SimRunTest, PathAddsItsTimesToTheFirstToken) {
  Site site = SiteOf(48);
  workload::Trace trace;
  trace.models = {"fp16"};
  trace.arrivals = {{1.0, 0, {500, 3}}};
  const World direct = *MakeWorld(TwoModels(), site);
  const double without = RunOf(direct, trace).outcomes[0].ttft_s();
  site.path.ask_us = 300;
  site.path.send_us = 20;
  site.path.answer_us = 1;
  const World world = *MakeWorld(TwoModels(), site);
  EXPECT_NEAR(RunOf(world, trace).outcomes[0].ttft_s(), without + 321e-6, 1e-9);
}

TEST(SimRunTest, PrefixHitsShortenThePrefill) {
  Site site = SiteOf(48);
  workload::Trace trace;
  trace.models = {"fp16"};
  trace.arrivals = {{0, 0, {1600, 1}}};
  for (const auto& [hits, us] : {std::pair(0.0, 72'000), {0.5, 40'000}}) {
    site.models["fp16"].prefix_hits = hits;
    const World world = *MakeWorld(TwoModels(), site);
    EXPECT_NEAR(RunOf(world, trace).outcomes[0].ttft_s(), us / 1e6, 1e-9);
  }
}

TEST(SimRunTest, ProxyEstimatesPromptsFromTheirTextUntilItHasLearnt) {
  // The prompt takes 24 ms by its tokens, and twice that by a first guess of 4
  // bytes per token.
  config::Fleet fleet = TwoModels();
  fleet.models[0].slo_ttft_ms = 35;
  Site site = SiteOf(64);
  workload::Trace trace;
  trace.models = {"fp16"};
  trace.arrivals = {{0, 0, {400, 1}}};
  const auto dropped = [&] {
    const RunResult result = RunOf(*MakeWorld(fleet, site), trace);
    return result.outcomes.back().end == workload::End::kDropped;
  };
  EXPECT_FALSE(dropped());
  site.models["fp16"].bytes_per_token = 8;
  EXPECT_TRUE(dropped());
  trace.arrivals.clear();
  for (int second = 0; second < 400; ++second) {
    trace.arrivals.push_back({1.0 * second, 0, {100, 1}});
  }
  trace.arrivals.push_back({400, 0, {400, 1}});
  EXPECT_FALSE(dropped());
}

TEST(SimRunTest, RequestAtTheTimeLimitIsCut) {
  const World world = *MakeWorld(TwoModels("fcfs"), SiteOf(48));
  RunOptions options;
  options.limit_s = 0.01;
  const RunResult r = RunOf(world, Load(40, 10, 5), options);
  size_t failed = 0;
  for (const workload::Outcome& o : r.outcomes) {
    failed += o.end == workload::End::kFailed;
  }
  EXPECT_GT(r.cut, 0u);
  EXPECT_EQ(r.cut, failed);
}

TEST(SimRunTest, PromptLongerThanTheModelTakesIsRefused) {
  const World world = *MakeWorld(TwoModels("fcfs"), SiteOf(48));
  workload::Trace trace;
  trace.models = {"fp16"};
  trace.arrivals = {{0, 0, {2999, 1}}, {5, 0, {2999, 2}}};
  const RunResult r = RunOf(world, trace);
  EXPECT_EQ(r.outcomes[0].end, workload::End::kDone);
  EXPECT_EQ(r.outcomes[1].end, workload::End::kDropped);
}

// --- Several GPUs ---

config::Fleet OneModelOnTwoGpus(double first_rate, double second_rate) {
  config::Fleet fleet = TwoModels();
  fleet.engines = {{"a", "fp16", "", 0, "GPU-1"},
                   {"b", "fp16", "", 0, "GPU-2"}};
  fleet.engines[0].target_rate = first_rate;
  fleet.engines[1].target_rate = second_rate;
  return fleet;
}

workload::Trace OnlyFp16(double per_second) {
  return workload::Poisson({{"fp16", per_second}}, 60, {{400, 50}}, 2);
}

TEST(SimRunTest, TargetRatesSplitTheRequests) {
  const World world = *MakeWorld(OneModelOnTwoGpus(3, 1), SiteOf(96));
  const RunResult r = RunOf(world, OnlyFp16(6));
  const double all = static_cast<double>(r.gpus[0].tokens + r.gpus[1].tokens);
  EXPECT_NEAR(static_cast<double>(r.gpus[0].tokens) / all, 0.75, 0.02);
}

TEST(SimRunTest, WithoutRatesTheLeastWaitTakesTheRequest) {
  for (const bool least_load : {false, true}) {
    config::Fleet fleet = OneModelOnTwoGpus(0, 0);
    fleet.proxy.least_load = least_load;
    const World two = *MakeWorld(fleet, SiteOf(96));
    fleet.engines.pop_back();
    const World one = *MakeWorld(fleet, SiteOf(96));
    const auto on_time = [](const RunResult& r) {
      return workload::Summarize(r.outcomes, 60).attainment;
    };
    const RunResult of_two = RunOf(two, OnlyFp16(60));
    EXPECT_GT(on_time(of_two), 1.3 * on_time(RunOf(one, OnlyFp16(60))));
    EXPECT_GT(of_two.gpus[1].tokens, of_two.gpus[0].tokens / 2) << least_load;
  }
}

TEST(SimRunTest, RequestThatOneGpuRefusesGoesToTheNext) {
  // All requests first go to the first GPU, because the second has a negligible
  // rate.
  const World world = *MakeWorld(OneModelOnTwoGpus(1, 1e-9), SiteOf(96));
  const RunResult r = RunOf(world, OnlyFp16(60));
  EXPECT_GT(r.gpus[1].tokens, r.gpus[0].tokens / 4);
}

// --- Replicas ---

// Returns a world with `models` on each of `gpus` GPUs: engines of four
// sequences whose answers take a second. `central`: the same engines belong to
// one daemon that sees them all.
World Replicas(uint32_t gpus, uint32_t models, bool central, double rate) {
  config::Fleet fleet;
  Site site;
  site.pool_bytes = uint64_t{512} << 20;
  site.slab_bytes = 2 << 20;
  site.slowdown.factors = {1, 1};
  if (central) site.pool_bytes *= gpus;
  for (uint32_t m = 0; m < models; ++m) {
    config::FleetModel model;
    model.name = "m" + std::to_string(m);
    model.slo_ttft_ms = 1000;
    model.max_batch = 4;
    model.kv_token_bytes = 2048;
    model.profile = config::StepProfile{20'000, 40, 0};
    for (uint32_t g = 0; g < gpus; ++g) {
      const std::string name = model.name + "-" + std::to_string(g);
      const std::string gpu = "GPU-" + std::to_string(central ? 0 : g);
      fleet.engines.push_back({name, model.name, "127.0.0.1", 1, gpu});
      fleet.engines.back().target_rate = rate;
    }
    site.models[model.name].longest_tokens = 3000;
    fleet.models.push_back(std::move(model));
  }
  return *MakeWorld(fleet, site);
}

struct ReplicasCase {
  uint32_t gpus, models;
  double load;  // of what the engines' batches can hold
};

double ReplicasOnTime(const ReplicasCase& c, bool central, double rate) {
  constexpr double kSeconds = 60;
  std::vector<workload::Stream> rates;
  for (uint32_t m = 0; m < c.models; ++m) {
    rates.push_back({"m" + std::to_string(m), c.load * 4 * c.gpus});
  }
  const workload::Trace trace =
      workload::Poisson(rates, kSeconds, {{100, 50}, {300, 50}}, 3);
  return workload::Summarize(
             RunOf(Replicas(c.gpus, c.models, central, rate), trace).outcomes,
             kSeconds)
      .attainment;
}

class ReplicasTest : public ::testing::TestWithParam<ReplicasCase> {};

// One queue that sees when any engine is free is the best reference.
TEST_P(ReplicasTest, ManyDaemonsDoAsWellAsOneQueue) {
  const double central = ReplicasOnTime(GetParam(), /*central=*/true, 0);
  for (const double rate : {0., 1.}) {
    const double tied = ReplicasOnTime(GetParam(), /*central=*/false, rate);
    EXPECT_GE(tied, central - .01) << (rate > 0 ? "target rates" : "waits");
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ReplicasTest,
                         ::testing::Values(ReplicasCase{2, 1, .7},
                                           ReplicasCase{2, 1, 2}));
#if !defined(FINESERVE_SANITIZED)
INSTANTIATE_TEST_SUITE_P(Larger, ReplicasTest,
                         ::testing::Values(ReplicasCase{4, 1, 1},
                                           ReplicasCase{4, 3, 1}));
#endif

// --- What the local scheduler is for ---

double Attainment(const std::string& policy, double per_second) {
  const World world = *MakeWorld(TwoModels(policy), SiteOf(512));
  return workload::Summarize(RunOf(world, Load(per_second, 60, 7)).outcomes, 60)
      .attainment;
}

TEST(SimRunTest, AllAreOnTimeWhileTheLoadIsLight) {
  for (const char* policy : {"fineserve", "moore-hodgson", "fcfs"}) {
    EXPECT_EQ(Attainment(policy, 2), 1) << policy;
  }
}

#if !defined(FINESERVE_SANITIZED)
TEST(SimRunTest, UnderOverloadAlgorithm2KeepsMoreOnTime) {
  const double ours = Attainment("fineserve", 40);
  EXPECT_GT(ours, Attainment("fcfs", 40) + 0.2);
  EXPECT_GE(ours, Attainment("moore-hodgson", 40) - 0.02);
  EXPECT_GT(Attainment("fineserve", 20), ours) << "less load, more on time";
}
#endif

TEST(SimRunTest, KappaLearnsThatStepsTakeTwiceAsLongAsGiven) {
  Site site = SiteOf(512);
  site.models["fp16"].truth = config::StepProfile{16'000, 80, 120};
  config::Fleet fleet = TwoModels();
  fleet.engines.resize(1);
  const World world = *MakeWorld(fleet, site);
  const RunResult r = RunOf(world, OnlyFp16(15));
  ASSERT_EQ(r.kappa.size(), 1u);
  EXPECT_NEAR(r.kappa[0], 2, 0.4);
}

}  // namespace
}  // namespace fineserve::sim

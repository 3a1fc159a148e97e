#include "bench/policies/sim_gpu.h"

#include <gtest/gtest.h>

#include "bench/policies/sim_engine.h"
#include "bench/workload/arrivals.h"

namespace fineserve::bench {
namespace {

using sched::RequestId;

// A step takes 1,000 µs, plus 10 µs a prompt token and 100 µs a sequence.
constexpr sched::Profile kTruth{1000, 10, 100};

TEST(SimEngineTest, PromptIsFilledInChunksAndThenDecoded) {
  SimEngine engine(100, kTruth, 1000);
  engine.Send(RequestId{1}, 150, 2);
  EXPECT_EQ(engine.BeginStep(), 1000 + 100 * 10);
  EXPECT_TRUE(engine.EndStep().empty());
  EXPECT_EQ(engine.BeginStep(), 1000 + 50 * 10);
  auto events = engine.EndStep();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].first);
  EXPECT_FALSE(events[0].last);
  EXPECT_EQ(engine.BeginStep(), 1000 + 100);
  events = engine.EndStep();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_FALSE(events[0].first);
  EXPECT_TRUE(events[0].last);
  EXPECT_TRUE(engine.idle());
}

TEST(SimEngineTest, DecodesTakeOfTheChunk) {
  SimEngine engine(100, kTruth, 1000);
  engine.Send(RequestId{1}, 10, 9);
  engine.BeginStep();
  engine.EndStep();
  engine.Send(RequestId{2}, 200, 9);
  EXPECT_EQ(engine.BeginStep(), 1000 + 100 + 99 * 10);
}

TEST(SimEngineTest, WithoutKvTheLastIsPutBackAndPrefilledAgain) {
  SimEngine engine(100, kTruth, 24);
  engine.Send(RequestId{1}, 10, 8);
  engine.Send(RequestId{2}, 10, 8);
  size_t firsts = 0, lasts = 0;
  for (int step = 0; step < 100 && !engine.idle(); ++step) {
    engine.BeginStep();
    for (const SimEngine::Event& e : engine.EndStep()) {
      firsts += e.first ? 1 : 0;
      lasts += e.last ? 1 : 0;
    }
  }
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(firsts, 2u) << "no first token twice";
  EXPECT_EQ(lasts, 2u);
  EXPECT_EQ(engine.preemptions(), 1u);
}

std::vector<SimModel> OneModel(sched::Profile truth, uint64_t kv_tokens) {
  return {{{"m", 500'000, 0, 512, 64, {8000, 40, 60}}, truth, kv_tokens}};
}

// Makes prompts of 400 tokens and some of 2,000, with answers of 100.
workload::Trace Load(double per_second) {
  return workload::Poisson({{"m", per_second}}, 60,
                           {{400, 100}, {400, 100}, {400, 100}, {2000, 100}},
                           7);
}

double Attainment(const SimResult& result) {
  return workload::Summarize(result.outcomes, 60).attainment;
}

constexpr sched::Profile kAsTold{8000, 40, 60};

TEST(SimGpuTest, EveryRequestEnds) {
  for (const char* policy : {"fineserve", "moore-hodgson", "fcfs"}) {
    const workload::Trace load = Load(40);
    const SimResult r = Simulate(OneModel(kAsTold, 20'000), load, policy, 0.1);
    ASSERT_EQ(r.outcomes.size(), load.arrivals.size());
    for (const workload::Outcome& o : r.outcomes) {
      ASSERT_NE(o.end, workload::End::kFailed) << policy;
    }
  }
}

TEST(SimGpuTest, AllAreOnTimeWhileTheLoadIsLight) {
  for (const char* policy : {"fineserve", "moore-hodgson", "fcfs"}) {
    EXPECT_EQ(
        Attainment(Simulate(OneModel(kAsTold, 100'000), Load(3), policy, 0.1)),
        1)
        << policy;
  }
}

TEST(SimGpuTest, UnderOverloadAlgorithm2KeepsMoreOnTime) {
  const auto on_time = [](const char* policy) {
    return Attainment(
        Simulate(OneModel(kAsTold, 100'000), Load(35), policy, 0.1));
  };
  const double ours = on_time("fineserve");
  EXPECT_GT(ours, on_time("fcfs") + 0.2);
  EXPECT_GE(ours, on_time("moore-hodgson") - 0.01);
}

TEST(SimGpuTest, WhoIsAdmittedIsOnTimeThoughStepsTakeTwiceAsLongAsTold) {
  const SimResult r =
      Simulate(OneModel({16'000, 80, 120}, 100'000), Load(20), "fineserve", 0);
  EXPECT_NEAR(r.kappa, 2, 0.5);
  size_t admitted = 0, on_time = 0;
  for (const workload::Outcome& o : r.outcomes) {
    if (o.end != workload::End::kDone || o.begin_s < 5) continue;
    ++admitted;
    on_time += o.attained() ? 1 : 0;
  }
  EXPECT_GT(admitted, 200u);
  EXPECT_GT(static_cast<double>(on_time), 0.9 * static_cast<double>(admitted));
}

TEST(SimGpuTest, EnginesAreSentNoMoreThanTheirKvHolds) {
  const SimResult r =
      Simulate(OneModel(kAsTold, 6000), Load(30), "fineserve", 0.1);
  // Every answer has the average length, so that none grows beyond its
  // estimate.
  EXPECT_EQ(r.preemptions, 0u);
  EXPECT_GT(workload::Summarize(r.outcomes, 60).done, 100u);
}

}  // namespace
}  // namespace fineserve::bench

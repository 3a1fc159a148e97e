#include "tools/lab/sim/gpu/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace fineserve::sim {
namespace {

using sched::RequestId;
using testing::HasSubstr;

// Returns a pool of `slabs` slabs of 2 MiB. A token takes 4 KiB, so a slab
// holds 512 tokens.
GpuSetup OneEngine(uint32_t slabs) {
  GpuSetup setup;
  const sched::Profile profile{8000, 40, 60};
  setup.geometry = {2 << 20, 1, slabs};
  setup.models = {{"m", 1'000'000, 0, 2048, 64, profile}};
  EngineSetup engine;
  engine.name = "a";
  engine.limits = {2048, 64, 16};
  engine.step_time = {profile};
  engine.kv_token_bytes = 4096;
  engine.format = {1, 16 * 4096, 16};
  engine.longest_tokens = 1024;
  setup.engines = {engine};
  return setup;
}

// Runs until there is nothing to do, or until `end`.
std::vector<News> RunUntil(Gpu* gpu, Micros end) {
  std::vector<News> all;
  while (gpu->next() <= end) {
    gpu->Run(gpu->next());
    for (const News& news : gpu->TakeNews()) all.push_back(news);
  }
  return all;
}

TEST(GpuTest, RequestIsAdmittedAnsweredAndDone) {
  const auto gpu = *Gpu::Create(OneEngine(8));
  gpu->Submit({RequestId{7}, 0, 500, 3, 500, 3, 100, 100});
  const std::vector<News> news = RunUntil(gpu.get(), 1'000'000);
  ASSERT_EQ(news.size(), 3u);
  EXPECT_EQ(news[0].kind, News::Kind::kAdmitted);
  EXPECT_EQ(news[0].at, 100);
  EXPECT_EQ(news[1].kind, News::Kind::kFirstToken);
  EXPECT_EQ(news[1].at, 100 + 8000 + 500 * 40);
  EXPECT_EQ(news[2].kind, News::Kind::kDone);
  EXPECT_EQ(news[2].at, news[1].at + 2 * 8060);
  EXPECT_EQ(news[2].generated, 3u);
}

TEST(GpuTest, FloorIsLeasedBeforeTheFirstRequest) {
  const auto gpu = *Gpu::Create(OneEngine(8));
  EXPECT_EQ(gpu->counters().slabs_leased, 2u) << "1,024 tokens";
}

TEST(GpuTest, SlabsAreFilledBeforeTheyAreLeasedAgain) {
  GpuSetup setup = OneEngine(4);
  setup.pool.fill_us = 5000;
  setup.engines.push_back(setup.engines[0]);
  setup.engines[1].name = "b";
  setup.engines[1].model = 1;
  setup.models.push_back(setup.models[0]);
  setup.engines[0].longest_tokens = setup.engines[1].longest_tokens = 512;
  const auto gpu = *Gpu::Create(setup);
  // "a" takes the slabs that "b" does not need, and "b" gets them back.
  gpu->Submit({RequestId{1}, 0, 500, 2, 500, 2, 0, 0});
  RunUntil(gpu.get(), 5'000'000);
  const uint64_t before = gpu->counters().slabs_leased;
  gpu->Submit({RequestId{2}, 1, 500, 10, 500, 10, 6'000'000, 6'000'000});
  RunUntil(gpu.get(), 20'000'000);
  const Gpu::Counters after = gpu->counters();
  EXPECT_EQ(after.slabs_leased - before, after.slabs_returned);
  EXPECT_GT(after.slabs_returned, 0u);
  EXPECT_EQ(gpu->pool()->counters().slabs_zeroed, 4 + after.slabs_returned);
}

TEST(GpuTest, SlabAskedBackIsReturnedDuringTheStep) {
  GpuSetup setup = OneEngine(8);
  setup.engines.push_back(setup.engines[0]);
  setup.engines[1].name = "b";
  setup.engines[1].model = 1;
  setup.models.push_back(setup.models[0]);
  setup.engines[0].step_time.profile.base_us = 900'000;
  setup.slowdown.factors = {1};
  const auto gpu = *Gpu::Create(setup);
  // "a" takes everything but the floor of "b", uses one slab, and is in a long
  // step when "b" wants more than its floor.
  gpu->Submit({RequestId{1}, 0, 500, 1, 500, 1, 0, 0});
  RunUntil(gpu.get(), 200'000);
  EXPECT_EQ(gpu->counters().slabs_returned, 0u);
  gpu->Submit({RequestId{2}, 1, 500, 9, 500, 9, 200'000, 200'000});
  RunUntil(gpu.get(), 220'000);
  EXPECT_GT(gpu->counters().slabs_returned, 0u);
}

constexpr uint64_t kMiB = 1 << 20;

// Returns three models of 40 MiB, of which one or two fit beside a pool.
GpuSetup MoreThanFit(evict::EvictionPolicy policy) {
  GpuSetup setup = OneEngine(50);
  setup.models[0].slo_ttft = 5'000'000;
  setup.engines[0].weight_bytes = 40 * kMiB;
  for (const char* name : {"b", "c"}) {
    setup.engines.push_back(setup.engines[0]);
    setup.engines.back().name = name;
    setup.engines.back().model = static_cast<uint32_t>(setup.models.size());
    setup.models.push_back(setup.models[0]);
  }
  setup.eviction = EvictionSetup{policy, 100 * kMiB, 4 * kMiB,
                                 40.0 * kMiB / 100'000, 20'000};
  return setup;
}

TEST(GpuTest, ModelsThatDoNotFitTakeTurns) {
  const auto gpu = *Gpu::Create(MoreThanFit(evict::EvictionPolicy::kSlack));
  uint32_t done = 0;
  for (uint64_t n = 0; n < 30; ++n) {
    const auto at = static_cast<Micros>(n) * 2'000'000;
    gpu->Submit(
        {RequestId{n}, static_cast<uint32_t>(n % 3), 200, 5, 200, 5, at, at});
    for (const News& news : RunUntil(gpu.get(), at + 1'999'999)) {
      EXPECT_NE(news.kind, News::Kind::kRefused) << n;
      done += news.kind == News::Kind::kDone;
      if (news.kind == News::Kind::kFirstToken) {
        EXPECT_LT(news.at - at, 300'000) << n << ": a way out, one in, a step";
      }
    }
    gpu->CheckInvariants();
  }
  EXPECT_EQ(done, 30u);
  EXPECT_GT(gpu->counters().activations, 8u);
}

TEST(GpuTest, EngineHoldsItsFloorWhileItsWeightsCome) {
  const auto gpu = *Gpu::Create(MoreThanFit(evict::EvictionPolicy::kSlack));
  RunUntil(gpu.get(), 1'000);
  const auto holders = [&] {
    size_t held = 0;
    for (uint32_t id = 1; id <= 3; ++id) {
      held += gpu->pool()->slabs().HeldBy(slab::EngineId{id}).slabs > 0;
    }
    return held;
  };
  const size_t here = holders();
  ASSERT_LT(here, 3u);
  gpu->Submit({RequestId{1}, 2, 200, 5, 200, 5, 1'000'000, 1'000'000});
  // 20 ms for one to leave, 100 ms to come.
  RunUntil(gpu.get(), 1'100'000);
  EXPECT_EQ(gpu->counters().activations, 0u);
  EXPECT_EQ(gpu->counters().evictions, 1u);
  EXPECT_EQ(holders(), here) << "one left with its slabs, one has its own";
}

TEST(GpuTest, ScratchOfViewsIsNoKv) {
  GpuSetup setup = MoreThanFit(evict::EvictionPolicy::kSlack);
  const auto without = *Gpu::Create(setup);
  setup.eviction->scratch_bytes = kMiB;
  const auto with = *Gpu::Create(setup);
  // Two of them are there.
  EXPECT_EQ(without->pool()->present_slabs() - with->pool()->present_slabs(),
            2 * kMiB / setup.geometry.slab_bytes());
}

TEST(GpuTest, ModelsThatAreNeverIdleGiveWay) {
  GpuSetup setup = MoreThanFit(evict::EvictionPolicy::kLru);
  for (sched::ModelSpec& model : setup.models) model.slo_ttft = 60'000'000;
  const auto gpu = *Gpu::Create(setup);
  std::map<uint64_t, uint32_t> done;
  for (uint64_t n = 0; n < 300; ++n) {
    const auto at = static_cast<Micros>(n) * 100'000;
    gpu->Submit(
        {RequestId{n}, static_cast<uint32_t>(n % 3), 400, 60, 400, 60, at, at});
    for (const News& news : RunUntil(gpu.get(), at + 99'999)) {
      done[Number(news.id) % 3] += news.kind == News::Kind::kDone;
    }
  }
  for (const News& news : RunUntil(gpu.get(), 200'000'000)) {
    done[Number(news.id) % 3] += news.kind == News::Kind::kDone;
  }
  gpu->CheckInvariants();
  for (uint64_t model = 0; model < 3; ++model) {
    EXPECT_EQ(done[model], 100u) << model;
  }
  EXPECT_EQ(gpu->next(), kNever) << "it comes to rest";
}

// With the same requests as above, the engine that has been idle longest leaves
// just before it is needed.
TEST(GpuTest, KnownRequestFindsItsEngineThere) {
  GpuSetup setup = MoreThanFit(evict::EvictionPolicy::kLru);
  setup.eviction->next_request = [](uint32_t model, Micros now) {
    Micros at = int64_t{2'000'000} * model;
    while (at <= now) at += 6'000'000;
    return at;
  };
  const auto gpu = *Gpu::Create(setup);
  for (uint64_t n = 1; n < 30; ++n) {
    const auto at = static_cast<Micros>(n) * 2'000'000;
    RunUntil(gpu.get(), at - 1);
    gpu->Submit(
        {RequestId{n}, static_cast<uint32_t>(n % 3), 200, 5, 200, 5, at, at});
    for (const News& news : RunUntil(gpu.get(), at + 1'000'000)) {
      if (news.kind != News::Kind::kFirstToken) continue;
      EXPECT_EQ(news.at - at, 8000 + 200 * 40) << n << ": a step, no way in";
    }
  }
  EXPECT_GT(gpu->counters().activations, 8u);
}

TEST(GpuTest, NeighbourSlowsTheStepThatIsUnderWay) {
  GpuSetup setup = OneEngine(8);
  setup.engines.push_back(setup.engines[0]);
  setup.engines[1].name = "b";
  setup.engines[1].model = 1;
  setup.models.push_back(setup.models[0]);
  const auto gpu = *Gpu::Create(setup);
  // A step takes 28 ms alone. "b" arrives after 10 ms, so "a" has 18 ms left,
  // and "b" has 28 ms to do: both run at half speed.
  gpu->Submit({RequestId{1}, 0, 500, 1, 500, 1, 0, 0});
  RunUntil(gpu.get(), 1);
  gpu->Submit({RequestId{2}, 1, 500, 1, 500, 1, 10'000, 10'000});
  std::vector<News> firsts;
  for (const News& news : RunUntil(gpu.get(), 1'000'000)) {
    if (news.kind == News::Kind::kFirstToken) firsts.push_back(news);
  }
  ASSERT_EQ(firsts.size(), 2u);
  EXPECT_EQ(firsts[0].at, 10'000 + 2 * 18'000);
  EXPECT_EQ(firsts[1].at, 46'000 + 10'000) << "18 of 28 ms were done by then";
}

TEST(GpuTest, StoppedEngineLeavesItsSlabsOnceItsProcessIsGone) {
  GpuSetup setup = OneEngine(2);  // its floor is the whole pool
  setup.engines.push_back(setup.engines[0]);
  setup.engines[1].name = "b";
  setup.engines[1].runs = false;
  const auto gpu = *Gpu::Create(setup);
  EXPECT_FALSE(gpu->Start(1, 1'000).ok()) << "a floor is in its way";
  EXPECT_FALSE(gpu->Runs(1));
  gpu->Submit({RequestId{1}, 0, 500, 200, 500, 200, 2'000, 2'000});
  RunUntil(gpu.get(), 100'000);
  gpu->Stop(0, 200'000, /*gone=*/900'000);
  const std::vector<News> news = RunUntil(gpu.get(), 800'000);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].kind, News::Kind::kBroken);
  EXPECT_FALSE(gpu->Start(1, 800'000).ok()) << "the driver still lists it";
  RunUntil(gpu.get(), 1'100'000);
  ASSERT_TRUE(gpu->Start(1, 1'200'000).ok());
  gpu->Submit({RequestId{2}, 0, 500, 3, 500, 3, 1'300'000, 1'300'000});
  const std::vector<News> of_next = RunUntil(gpu.get(), 3'000'000);
  ASSERT_EQ(of_next.size(), 3u);
  EXPECT_EQ(of_next[2].kind, News::Kind::kDone);
  gpu->CheckInvariants();
}

// Drops whatever comes.
class DropAll : public sched::Policy {
 public:
  void Add(const sched::Queued& request) override {
    waiting_.push_back(request);
  }
  void Remove(const sched::Queued&) override {}
  void Decide(Micros now, sched::Host* host) override {
    for (const sched::Queued& r : std::exchange(waiting_, {})) {
      host->Drop(r, now);
    }
  }
  Micros NextCheck() const override { return kNever; }

 private:
  std::vector<sched::Queued> waiting_;
};

TEST(GpuTest, PolicyThatDoesNotShipDecidesInPlaceOfTheNamedOne) {
  GpuSetup setup = OneEngine(8);
  setup.policy = "fcfs";
  setup.make_policy = [] { return std::make_unique<DropAll>(); };
  const auto gpu = *Gpu::Create(setup);
  gpu->Submit({RequestId{1}, 0, 500, 3, 3, 0, 0});
  const std::vector<News> news = RunUntil(gpu.get(), 1'000'000);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].kind, News::Kind::kRefused);
}

TEST(GpuTest, EngineWithoutRoomForItsFloorIsNamed) {
  GpuSetup setup = OneEngine(1);
  const auto gpu = Gpu::Create(setup);
  ASSERT_FALSE(gpu.ok());
  EXPECT_THAT(std::string(gpu.status().message()),
              HasSubstr("engine \"a\": its floor of 2 slabs"));
}

}  // namespace
}  // namespace fineserve::sim

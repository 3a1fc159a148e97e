#include "bench/paper/compared_systems/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/paper/compared_systems/engines.h"
#include "bench/paper/figures.h"
#include "bench/paper/fineserve/fineserve_scene.h"
#include "daemon/scheduling/global/testdata/apex_profiles.h"

namespace fineserve::bench {
namespace {

using plan::Tier;

// Returns the authors' profiles of one GPU, and two lengths of requests.
Data TinyData() {
  Data data;
  data.profiles = plan::Tp1Profiles();
  data.sharegpt = {{200, 100}, {600, 200}};
  return data;
}

Scene TableFour(double rate, double seconds = 5) {
  FineServeSetting setting;
  setting.models = TableFourModels();
  setting.rate = rate;
  setting.seconds = seconds;
  return FineServeScene(TinyData(), setting);
}

// Returns the bytes of KV on a GPU that has `engines` engines.
double KvOf(const sim::World& world, size_t engines) {
  for (const sim::GpuSetup& gpu : world.gpus) {
    if (gpu.engines.size() != engines) continue;
    double bytes = static_cast<double>(gpu.geometry.pool_bytes());
    for (const sim::EngineSetup& e : gpu.engines) {
      bytes += static_cast<double>(e.own_tokens * e.kv_token_bytes);
    }
    return bytes;
  }
  return 0;
}

TEST(ServeTest, PoolsAndFixedPartsHaveTheSameMemory) {
  const Scene scene = TableFour(3);
  const double pool = KvOf(WorldOf(FineServeOf(Tier::kPaper), scene), 2);
  // A and B have 80 GB less 16.1 and 9.1 GB of weights, and less activations.
  EXPECT_NEAR(pool, 54.6e9, 0.2e9);
  for (const Tier tier : {Tier::kPaper, Tier::kReleased}) {
    EXPECT_NEAR(KvOf(WorldOf(StaticStarOf(tier), scene), 2), pool, 0.1e9)
        << plan::TierName(tier);
  }
}

TEST(ServeTest, ReleasedPoolIsWhatTheManagerLeaves) {
  const Scene scene = TableFour(3);
  // C and B together have 79.6 GiB less 1.8 times 35 and 8 GiB.
  const sim::World world = WorldOf(PrismStarOf(Tier::kReleased), scene);
  EXPECT_NEAR(KvOf(world, 2) / (1 << 30), 79.6 - 1.8 * 43, 0.1);
  // C has 80 layers, so its own part is its 2,048 tokens and 80 / 112 of the
  // rest.
  for (const sim::GpuSetup& gpu : world.gpus) {
    for (const sim::EngineSetup& e : gpu.engines) {
      if (e.name != "C") continue;
      EXPECT_GT(e.own_tokens, 4096u);
      EXPECT_LT(e.own_tokens, 7000u);
    }
  }
}

TEST(ServeTest, EverySystemGetsTheSameRequests) {
  const Scene scene = TableFour(6);
  const Measured ours = ServeOnce(Ours(), scene, 1);
  const Measured theirs = ServeOnce(StaticStarOf(Tier::kReleased), scene, 1);
  ASSERT_EQ(ours.outcomes.size(), theirs.outcomes.size());
  for (size_t i = 0; i < ours.outcomes.size(); ++i) {
    EXPECT_EQ(ours.outcomes[i].begin_s, theirs.outcomes[i].begin_s);
    EXPECT_EQ(ours.outcomes[i].lengths.input, theirs.outcomes[i].lengths.input);
  }
  EXPECT_NE(ServeOnce(Ours(), scene, 2).outcomes[0].begin_s,
            ours.outcomes[0].begin_s);
}

TEST(ServeTest, AtALowRateEverybodyKeepsEverythingOnTime) {
  const Scene scene = TableFour(0.6, 20);
  for (const Tier tier : {Tier::kPaper, Tier::kReleased}) {
    for (const System& s :
         {FineServeOf(tier), PrismStarOf(tier), StaticStarOf(tier)}) {
      EXPECT_EQ(ServeOnce(s, scene, 1).all.attainment, 1) << s.name;
    }
  }
}

// 33 GB of weights do not fit on a GPU of 30 GB, but all models have a place
// there in turn.
TEST(ServeTest, ModelsThatDoNotFitHaveAPlaceIfIdleOnesLeave) {
  Scene scene = TableFour(0.3, 60);
  scene.snapshot.models = {scene.snapshot.models[0], scene.snapshot.models[1],
                           scene.snapshot.models[0]};
  scene.snapshot.models[2].name = "D";
  scene.snapshot.gpus = {{"g", "n", 30e9}};
  scene.load = [](uint64_t) {
    workload::Trace trace;
    trace.models = {"A", "B", "D"};
    for (uint32_t i = 0; i < 30; ++i) {
      trace.arrivals.push_back({20.0 * i, i % 3, {200, 20}});
    }
    return trace;
  };
  const auto places = [&](const System& s) {
    size_t n = 0;
    for (const auto& m : WorldOf(s, scene).models) n += m.replicas.size();
    return n;
  };
  EXPECT_LT(places(Ours()), 3u);
  for (const System& s : {OursEvicting(), PrismEvicting(), Qlm()}) {
    EXPECT_EQ(places(s), 3u) << s.name;
  }
  const Measured known = ServeOnce(Clairvoyant(), scene, 1);
  EXPECT_EQ(known.all.attainment, 1);
  EXPECT_GT(known.evictions, 5);
  EXPECT_LT(ServeOnce(Ours(), scene, 1).all.attainment, 0.9);
}

TEST(ServeTest, ReleasedBatchGrowsWithTheSlo) {
  const plan::Profile profile = plan::Tp1Profiles()[0];
  EXPECT_EQ(ReleasedBatch(profile, 1e-6), 1u);
  EXPECT_LT(ReleasedBatch(profile, 0.1), ReleasedBatch(profile, 1));
  EXPECT_EQ(ReleasedBatch(profile, 1e6), 256u) << "what an engine may run";
}

TEST(FiguresTest, TableFourComesOutOfTheExcerpt) {
  const Figure f = FineServeTable4(TinyData(), Effort());
  EXPECT_EQ(f.verdict(), Verdict::kReproduced);
  EXPECT_EQ(f.comparisons.size(), 5u);
}

TEST(FiguresTest, FigureFourOnTinyDataSaysWhatItComparesAndWhereFrom) {
  Effort effort;
  effort.seeds = 3;
  const Figure f = FineServeFigure4(TinyData(), effort);
  ASSERT_EQ(f.panels.size(), 2u);
  EXPECT_EQ(f.panels[0].curves.size(), 3u);
  EXPECT_EQ(f.panels[0].curves[0].y.size(), f.panels[0].x.size());
  EXPECT_FALSE(f.provenance.empty());
  EXPECT_GT(f.comparisons[0].ours.mean, 0);
}

TEST(FiguresTest, EachHasAnIdOfItsOwn) {
  std::map<std::string, int> ids;
  for (const FigureEntry& entry : AllFigures()) ++ids[entry.id];
  for (const auto& [id, n] : ids) EXPECT_EQ(n, 1) << id;
  EXPECT_EQ(ids.size(), AllFigures().size());
  for (const NotShown& n : FiguresNotShown()) EXPECT_FALSE(n.reason.empty());
}

}  // namespace
}  // namespace fineserve::bench

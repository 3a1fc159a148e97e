#include "tools/lab/sim/fleet/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::sim {
namespace {

using testing::HasSubstr;

config::Fleet OneModel() {
  config::Fleet fleet;
  config::FleetModel m;
  m.name = "m";
  m.slo_ttft_ms = 800;
  m.kv_token_bytes = 4096;
  m.profile = config::StepProfile{8000, 40, 60};
  fleet.models = {m};
  fleet.engines = {{"a", "m", "", 0, "GPU-1"},
                   {"b", "m", "", 0, "GPU-2"},
                   {"c", "m", "", 0, "GPU-1"}};
  fleet.engines[0].target_rate = 2;
  fleet.engines[2].target_rate = 1;
  return fleet;
}

TEST(WorldTest, EnginesOfAModelOnOneGpuAreOneReplica) {
  const auto world = MakeWorld(OneModel(), Site());
  ASSERT_TRUE(world.ok()) << world.status();
  ASSERT_EQ(world->gpus.size(), 2u);
  EXPECT_EQ(world->gpus[0].engines.size(), 2u);
  EXPECT_EQ(world->gpus[0].models.size(), 1u);
  ASSERT_EQ(world->models[0].replicas.size(), 2u);
  EXPECT_EQ(world->models[0].replicas[0].target_rate, 3);
  EXPECT_EQ(world->models[0].replicas[1].target_rate, 0);
}

TEST(WorldTest, SiteOverridesWhatTheFleetSays) {
  Site site;
  site.models["m"].kv_token_bytes = 8192;
  site.models["m"].truth = config::StepProfile{1, 2, 3};
  site.models["m"].bytes_per_token = 5;
  const auto world = MakeWorld(OneModel(), site);
  ASSERT_TRUE(world.ok()) << world.status();
  EXPECT_EQ(world->models[0].bytes_per_token, 5);
  const EngineSetup& engine = world->gpus[0].engines[0];
  EXPECT_EQ(engine.kv_token_bytes, 8192u);
  EXPECT_EQ(engine.step_time.profile.per_token_us, 2);
  EXPECT_EQ(world->gpus[0].models[0].profile.per_token_us, 40)
      << "the scheduler knows the fleet's";
}

TEST(WorldTest, CountsOfEnginesReplaceEstimates) {
  Site site;
  site.models["m"].bytes_per_token = 5;
  config::Fleet fleet = OneModel();
  fleet.models[0].counts_prompts = true;
  EXPECT_EQ(MakeWorld(fleet, site)->models[0].bytes_per_token, 0);
}

TEST(WorldTest, EvictedEnginesShareTheMemoryOfTheirGpu) {
  Site site;
  site.memory_bytes = uint64_t{4} << 30;
  site.eviction = SiteEviction{uint64_t{1} << 30, 2'000'000'000, 500, 1 << 20};
  site.models["m"].weight_bytes = uint64_t{3} << 30;
  config::Fleet fleet = OneModel();
  EXPECT_THAT(std::string(MakeWorld(fleet, site).status().message()),
              HasSubstr("engine \"a\""))
      << "it stays";
  for (config::FleetEngine& e : fleet.engines) e.may_evict = true;
  fleet.eviction_policy = "lru";
  const auto world = MakeWorld(fleet, site);
  ASSERT_TRUE(world.ok()) << world.status();
  const GpuSetup& gpu = world->gpus[0];
  ASSERT_TRUE(gpu.eviction);
  EXPECT_EQ(gpu.eviction->policy, evict::EvictionPolicy::kLru);
  EXPECT_EQ(gpu.eviction->gpu_bytes, site.memory_bytes);
  EXPECT_EQ(gpu.eviction->link_bytes_per_us, 2000);
  EXPECT_EQ(gpu.eviction->scratch_bytes, 1u << 20);
  EXPECT_EQ(gpu.engines[1].weight_bytes, uint64_t{3} << 30);
  EXPECT_EQ(gpu.geometry.slab_count * gpu.geometry.slab_bytes(),
            site.memory_bytes);
  site.eviction->headroom_bytes += 1;
  EXPECT_THAT(std::string(MakeWorld(fleet, site).status().message()),
              HasSubstr("more than the site file's [gpu] memory"));
}

TEST(WorldTest, MissingFigureIsNamedWithTheFix) {
  config::Fleet no_bytes = OneModel();
  no_bytes.models[0].kv_token_bytes = 0;
  EXPECT_THAT(std::string(MakeWorld(no_bytes, Site()).status().message()),
              HasSubstr("model \"m\" needs kv_token_bytes"));
  config::Fleet no_profile = OneModel();
  no_profile.models[0].profile = absl::nullopt;
  EXPECT_THAT(std::string(MakeWorld(no_profile, Site()).status().message()),
              HasSubstr("model \"m\" needs a profile"));
  config::Fleet no_view = OneModel();
  no_view.engines[1].view = false;
  EXPECT_THAT(std::string(MakeWorld(no_view, Site()).status().message()),
              HasSubstr("engine \"b\" has no view"));
  config::Fleet places = OneModel();
  places.engines[2].is_place = true;
  EXPECT_THAT(std::string(MakeWorld(places, Site()).status().message()),
              HasSubstr("memory = \"80GiB\""));
}

TEST(WorldTest, PlacesDoNotRunUntilAPlannerWantsThem) {
  config::Fleet fleet = OneModel();
  for (config::FleetEngine& e : fleet.engines) e.is_place = e.name != "b";
  fleet.models[0].measured.emplace().weight_bytes = 1e9;
  fleet.models[0].measured->activation_bytes = 1e8;
  Site site;
  site.memory_bytes = uint64_t{80} << 30;
  const auto world = MakeWorld(fleet, site);
  ASSERT_TRUE(world.ok()) << world.status();
  EXPECT_FALSE(world->gpus[0].engines[1].runs);
  EXPECT_TRUE(world->gpus[1].engines[0].runs);
  ASSERT_TRUE(world->planning);
  ASSERT_EQ(world->planning->places.size(), 2u);
  const PlaceSetup& c = world->planning->places[1];
  EXPECT_EQ(c.engine.name, "c");
  EXPECT_EQ(c.gpu, 0u);
  EXPECT_EQ(c.place, 1u);
  EXPECT_EQ(c.weight_bytes, 1'000'000'000u);
  EXPECT_EQ(c.beside_bytes, 1'100'000'000u);
  EXPECT_EQ(world->planning->beside_bytes[1], 1'100'000'000u);
}

}  // namespace
}  // namespace fineserve::sim

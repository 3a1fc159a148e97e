#include "daemon/fleet/config/fleet_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace fineserve::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = SectionChange::Kind;

Fleet TwoModels() {
  Fleet fleet;
  for (const char* const name : {"chat", "code"}) {
    FleetModel model;
    model.name = name;
    model.slo_ttft_ms = 800;
    fleet.models.push_back(model);
    FleetEngine engine;
    engine.name = std::string(name) + "-a";
    engine.model = name;
    engine.host = "127.0.0.1";
    engine.port = static_cast<uint16_t>(9001 + fleet.engines.size());
    engine.command = {"serve", name};
    fleet.engines.push_back(engine);
  }
  return fleet;
}

std::vector<SectionChange> Changes(const Fleet& before, const Fleet& after) {
  return Differences(Describe(before), Describe(after));
}

TEST(FleetDescriptionTest, SameFleetHasNoDifferences) {
  EXPECT_THAT(Changes(TwoModels(), TwoModels()), IsEmpty());
  EXPECT_EQ(DigestOf(Describe(TwoModels())), DigestOf(Describe(TwoModels())));
}

TEST(FleetDescriptionTest, AddedRemovedAndChangedSectionsAreNamed) {
  Fleet after = TwoModels();
  after.models[0].slo_ttft_ms = 900;
  after.engines[1].name = "code-b";
  EXPECT_THAT(Changes(TwoModels(), after),
              ElementsAre(SectionChange{"engine code-a", Kind::kRemoved},
                          SectionChange{"engine code-b", Kind::kAdded},
                          SectionChange{"model chat",
                                        Kind::kChanged,
                                        {{"slo_ttft_ms", "800", "900"}}}));
}

// Each field that can be written must show; otherwise, apply would not notice
// its change.
TEST(FleetDescriptionTest, EveryFieldShows) {
  using Edit = std::function<void(Fleet*)>;
  const std::vector<Edit> edits = {
      [](Fleet* f) { f->policy = "fcfs"; },
      [](Fleet* f) { f->proxy.listen_port = 1; },
      [](Fleet* f) { f->proxy.admin_host = "::1"; },
      [](Fleet* f) { f->proxy.fail_open = false; },
      [](Fleet* f) { f->proxy.least_load = true; },
      [](Fleet* f) { f->proxy.other_paths.all = true; },
      [](Fleet* f) { f->proxy.other_paths.listed = {"/v1/x"}; },
      [](Fleet* f) { f->proxy.keys_path = "/keys"; },
      [](Fleet* f) { f->proxy.ledger_path = "/ledger"; },
      [](Fleet* f) { f->proxy.open = true; },
      [](Fleet* f) { f->proxy.all_may_set_service = true; },
      [](Fleet* f) { f->proxy.origins = {"*"}; },
      [](Fleet* f) { f->proxy.admin_names = {"gpu1"}; },
      [](Fleet* f) { f->proxy.drain_s = 1; },
      [](Fleet* f) { f->proxy.engine_timeout_s = 1; },
      [](Fleet* f) { f->planner.on = true; },
      [](Fleet* f) { f->models[0].aliases = {"latest"}; },
      [](Fleet* f) { f->models[0].adapters = {"lora"}; },
      [](Fleet* f) { f->models[0].slo_tpot_ms = 1; },
      [](Fleet* f) { f->models[0].chunk_tokens = 1; },
      [](Fleet* f) { f->models[0].max_batch = 1; },
      [](Fleet* f) { f->models[0].block_tokens = 1; },
      [](Fleet* f) { f->models[0].kv_token_bytes = 1; },
      [](Fleet* f) { f->models[0].counts_prompts = true; },
      [](Fleet* f) {
        f->models[0].profile = {1, 2, 3};
      },
      [](Fleet* f) { f->models[0].measured.emplace().model = "x"; },
      [](Fleet* f) { f->models[0].expected_rate = 1; },
      [](Fleet* f) { f->models[0].expected_prompt_tokens = 1; },
      [](Fleet* f) { f->models[0].expected_output_tokens = 1; },
      [](Fleet* f) { f->models[0].replicas = 0; },
      [](Fleet* f) { f->models[0].fallback = "code"; },
      [](Fleet* f) { f->models[0].context_bytes = 1; },
      [](Fleet* f) { f->models[0].process_bytes = 1; },
      [](Fleet* f) { f->outside.emplace_back().name = "gpt"; },
      [](Fleet* f) { f->engines[0].model = "code"; },
      [](Fleet* f) { f->engines[0].host = "::1"; },
      [](Fleet* f) { f->engines[0].port = 1; },
      [](Fleet* f) { f->engines[0].gpu = "GPU-1"; },
      [](Fleet* f) { f->engines[0].gpu_by_index = true; },
      [](Fleet* f) { f->engines[0].command.push_back("x"); },
      [](Fleet* f) { f->engines[0].command = {"serve chat"}; },
      [](Fleet* f) { f->engines[0].environment["A"] = "1"; },
      [](Fleet* f) { f->engines[0].view = false; },
      [](Fleet* f) { f->engines[0].restart_after_s = 1; },
      [](Fleet* f) { f->engines[0].on_request = true; },
      [](Fleet* f) { f->engines[0].is_scaled = true; },
      [](Fleet* f) { f->engines[0].stop_after_s = 1; },
      [](Fleet* f) { f->engines[0].may_evict = true; },
      [](Fleet* f) { f->engines[0].evict_after_s = 1; },
      [](Fleet* f) { f->engines[0].target_rate = 1; },
      [](Fleet* f) { f->engines[0].floor_bytes = 1; },
      [](Fleet* f) { f->engines[0].cap_bytes = 1; },
      [](Fleet* f) { f->engines[0].is_place = true; }};
  for (size_t i = 0; i < edits.size(); ++i) {
    Fleet after = TwoModels();
    edits[i](&after);
    EXPECT_EQ(Changes(TwoModels(), after).size(), 1u) << "edit " << i;
    EXPECT_NE(DigestOf(Describe(TwoModels())), DigestOf(Describe(after)))
        << "edit " << i;
  }
}

TEST(FleetDescriptionTest, ValueInAnEnvironmentIsNotShown) {
  Fleet before = TwoModels();
  before.engines[0].environment["HF_TOKEN"] = "secret-1";
  Fleet after = before;
  after.engines[0].environment["HF_TOKEN"] = "secret-2";
  const std::vector<SectionChange> changes = Changes(before, after);
  ASSERT_EQ(changes.size(), 1u);
  ASSERT_EQ(changes[0].keys.size(), 1u);
  EXPECT_EQ(changes[0].keys[0].key, "env HF_TOKEN");
  EXPECT_EQ(changes[0].keys[0].before.find("secret"), std::string::npos);
  EXPECT_TRUE(NeedsRestart(changes[0]));
}

TEST(FleetDescriptionTest, OnlyHowAnEngineIsStartedNeedsARestart) {
  const auto needs = [](const std::function<void(Fleet*)>& edit) {
    Fleet after = TwoModels();
    edit(&after);
    return NeedsRestart(Changes(TwoModels(), after).at(0));
  };
  EXPECT_TRUE(needs([](Fleet* f) { f->engines[0].command = {"other"}; }));
  EXPECT_TRUE(needs([](Fleet* f) { f->engines[0].port = 9009; }));
  EXPECT_TRUE(needs([](Fleet* f) { f->engines[0].view = false; }));
  EXPECT_TRUE(needs([](Fleet* f) { f->engines[0].gpu = "GPU-1"; }));
  EXPECT_FALSE(needs([](Fleet* f) { f->engines[0].target_rate = 2; }));
  EXPECT_FALSE(needs([](Fleet* f) { f->engines[0].model = "code"; }));
  EXPECT_FALSE(needs([](Fleet* f) { f->models[0].max_batch = 1; }));
}

}  // namespace
}  // namespace fineserve::config

#include "tools/lab/sim/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/lab/workload/arrivals.h"

namespace fineserve::sim {
namespace {

using testing::HasSubstr;

class SimReportTest : public testing::Test {
 protected:
  SimReportTest() {
    config::Fleet fleet;
    config::FleetModel m;
    m.name = "m";
    m.slo_ttft_ms = 400;
    m.kv_token_bytes = 4096;
    m.profile = config::StepProfile{8000, 40, 60};
    fleet.models = {m};
    fleet.engines = {{"a", "m", "", 0, "GPU-1"}};
    Site site;
    site.pool_bytes = uint64_t{64} << 20;
    site.slab_bytes = 2 << 20;
    world_ = *MakeWorld(fleet, site);
  }
  std::string JsonOf(uint64_t seed) const {
    const workload::Trace trace =
        workload::Poisson({{"m", 12}}, 30, {{300, 40}, {1500, 90}}, seed);
    const RunResult result = *sim::Run(world_, trace, {0}, {});
    return ToJson({&world_, &result, "made", "a test", seed, 7});
  }
  World world_;
};

TEST_F(SimReportTest, SameSeedGivesTheSameBytesAndAnotherOneDoesNot) {
  EXPECT_EQ(JsonOf(1), JsonOf(1));
  const auto one = nlohmann::json::parse(JsonOf(1));
  const auto two = nlohmann::json::parse(JsonOf(2));
  EXPECT_NE(one["all"]["ttft_s"], two["all"]["ttft_s"]);
}

TEST_F(SimReportTest, TellsItsInputsAndTheBoundBesideTheResult) {
  const auto json = nlohmann::json::parse(JsonOf(1));
  EXPECT_EQ(json["inputs"], "a test");
  EXPECT_EQ(json["clairvoyant_bound"], 7);
  EXPECT_EQ(json["all"]["requests"], json["models"]["m"]["requests"]);
  EXPECT_EQ(json["all"]["attainment_by_length_decile"].size(), 10u);
}

TEST_F(SimReportTest, TellsThePlanAndItsMovesSinceTheLoadBegan) {
  RunResult result;
  result.load_began = 5'000'000;
  PlanRecord& plan = result.plan.emplace();
  plan.steps = {{2'000'000, 3, "models had no engine: a serves"},
                {65'500'000, 4, "m moves from a to b (why)"}};
  plan.last_number = 6;
  plan.moves = 1;
  plan.troubles = {"model \"x\" has no engine"};
  const auto json = nlohmann::json::parse(
      ToJson({&world_, &result, "made", "a test", 1, absl::nullopt}));
  EXPECT_EQ(json["plan"]["number"], 6);
  EXPECT_EQ(json["plan"]["moves"], 1);
  EXPECT_EQ(json["plan"]["steps"][0]["seconds"], -3);
  EXPECT_EQ(json["plan"]["steps"][1]["seconds"], 60.5);
  EXPECT_EQ(json["plan"]["steps"][1]["why"], "m moves from a to b (why)");
  EXPECT_EQ(json["plan"]["troubles"].size(), 1u);
  EXPECT_FALSE(nlohmann::json::parse(JsonOf(1)).contains("plan"))
      << "there was no planner";
}

TEST_F(SimReportTest, DrawsAllThreeLines) {
  RunResult result;
  result.outcomes.resize(3);
  result.outcomes[2].begin_s = 4000;
  const std::string svg =
      ToSvg({&world_, &result, "made", "a test", 1, absl::nullopt});
  for (const char* name : {"sent", "done", "on time", "</svg>"}) {
    EXPECT_THAT(svg, HasSubstr(name));
  }
}

}  // namespace
}  // namespace fineserve::sim

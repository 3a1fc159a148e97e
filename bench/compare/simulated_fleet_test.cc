#include "bench/compare/simulated_fleet.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "bench/compare/compared_fleet.h"
#include "bench/compare/loads.h"
#include "daemon/fleet/config/fleet.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::bench {
namespace {

using Fleet = ComparedFleet;

class SimulatedFleetTest : public testing::Test {
 protected:
  SimulatedFleetTest() {
    Fleet::Text({"GPU-1", "GPU-2"}, 8000, {9001, 9002, 9003, 9004}, "tinyserve",
                FleetShape())
        .WriteTo(Path("fleet.toml"));
    sim::PathTimes path;
    path.ask_us = path.send_us = path.answer_us = 1000;
    std::ofstream(Path("site.toml")) << Fleet::SiteText(path, FleetShape());
  }
  std::string Path(const std::string& name) const {
    return folder_.path() + "/" + name;
  }
  SimulatedRun Simulated(const workload::Trace& trace) const {
    const auto run = Simulate(Path("fleet.toml"), Path("site.toml"), trace);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *run : SimulatedRun();
  }

  const process::TemporaryFolder folder_;
};

TEST_F(SimulatedFleetTest, TheDaemonsReadTheSameFile) {
  const auto fleet = config::ReadFleet(Path("fleet.toml"));
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  ASSERT_EQ(fleet->engines.size(), 4u);
  EXPECT_EQ(fleet->engines[1].gpu, "GPU-1");
  EXPECT_EQ(fleet->engines[2].gpu, "GPU-2");
  EXPECT_EQ(fleet->engines[2].port, 9003);
  EXPECT_EQ(fleet->models[0].slo_ttft_ms, 1000u);
}

TEST_F(SimulatedFleetTest, AFirstTokenTakesThePathAndAStep) {
  workload::Trace trace;
  trace.models = Fleet::Models();
  trace.arrivals = {{0, 3, {100, 2}}};
  const SimulatedRun run = Simulated(trace);
  ASSERT_EQ(run.outcomes.size(), 1u);
  EXPECT_DOUBLE_EQ(run.outcomes[0].ttft_s(),
                   0.003 + Fleet::PrefillSeconds(100));
}

TEST_F(SimulatedFleetTest, FewerAreOnTimeUnderTwiceTheLoadThanUnderHalf) {
  const auto attainment = [&](double load) {
    const SimulatedRun run = Simulated(Steady({{200, 100}}, load, 60, 1));
    return workload::Summarize(run.outcomes, run.seconds).attainment;
  };
  EXPECT_GT(attainment(0.5), 0.99);
  EXPECT_LT(attainment(2), 0.7);
}

TEST_F(SimulatedFleetTest, EnginesThatDoNotFitComeWhenTheyAreAsked) {
  FleetShape shape;
  shape.models = std::size(kComparedModels);
  shape.weights_mib = 64;
  Fleet::Text({"GPU-1", "GPU-2"}, 8000, std::vector<uint16_t>(10, 9001),
              "tinyserve", shape)
      .WriteTo(Path("fleet.toml"));
  sim::PathTimes path;
  path.ask_us = path.send_us = path.answer_us = 1000;
  const MoveTimes moves = {72 << 20, 0.01, 0.2};
  std::ofstream(Path("site.toml")) << Fleet::SiteText(path, shape, moves);
  workload::Trace trace;
  trace.models = Fleet::Models(shape);
  for (uint32_t m = 0; m < shape.models; ++m) {
    trace.arrivals.push_back({m + 1.0, m, {100, 2}});
  }
  const SimulatedRun run = Simulated(trace);
  ASSERT_EQ(run.outcomes.size(), 10u);
  EXPECT_EQ(run.activations, 6u) << "two of five are on each GPU at the start";
  for (const workload::Outcome& o : run.outcomes) {
    EXPECT_EQ(o.end, workload::End::kDone);
    const double waited = o.ttft_s() - Fleet::PrefillSeconds(100);
    if (o.model < 4) {
      EXPECT_LT(waited, 0.004);
    } else {
      EXPECT_GT(waited, 0.2) << o.model;
    }
  }
}

}  // namespace
}  // namespace fineserve::bench

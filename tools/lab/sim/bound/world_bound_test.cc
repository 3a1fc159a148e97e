#include "tools/lab/sim/bound/world_bound.h"

#include <gtest/gtest.h>

#include "tools/lab/sim/fleet/run.h"
#include "tools/lab/workload/arrivals.h"

namespace fineserve::sim {
namespace {

// Two GPUs: model "both" has an engine on each, "one" has one on the first and
// "two" one on the second.
World TwoGpus(const std::string& policy, const std::vector<double>& slowdown,
              bool same_slo) {
  config::Fleet fleet;
  fleet.policy = policy;
  for (const char* name : {"both", "one", "two"}) {
    config::FleetModel m;
    m.name = name;
    m.slo_ttft_ms = same_slo || m.name != "two" ? 600 : 300;
    m.chunk_tokens = 512;
    m.kv_token_bytes = 4096;
    m.profile = config::StepProfile{8000, 40, 60};
    fleet.models.push_back(m);
  }
  fleet.engines = {{"both-a", "both", "", 0, "GPU-1"},
                   {"both-b", "both", "", 0, "GPU-2"},
                   {"one-a", "one", "", 0, "GPU-1"},
                   {"two-a", "two", "", 0, "GPU-2"}};
  Site site;
  site.pool_bytes = uint64_t{256} << 20;
  site.slab_bytes = 2 << 20;
  site.slowdown.factors = slowdown;
  for (const auto& m : fleet.models) site.models[m.name].longest_tokens = 4000;
  return *MakeWorld(fleet, site);
}

TEST(ClairvoyantBoundTest, NoPolicyHasMoreFirstTokensOnTime) {
  int overloaded = 0;
  double closest = 1;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const double rate = 6.0 * static_cast<double>(seed);
    const workload::Trace trace =
        workload::Poisson({{"both", 2 * rate}, {"one", rate}, {"two", rate}}, 6,
                          {{100, 20}, {400, 60}, {900, 5}, {3000, 20}}, seed);
    for (const char* policy : {"fineserve", "moore-hodgson", "fcfs"}) {
      for (const auto& slowdown : {std::vector<double>{}, {1.0}, {1.0, 1.5}}) {
        const World world = TwoGpus(policy, slowdown, seed % 2 == 0);
        const auto model_of = *ModelsOf(world, trace);
        const auto bound =
            static_cast<double>(ClairvoyantBound(world, trace, model_of));
        const RunResult r = *sim::Run(world, trace, model_of, {});
        double on_time = 0;
        for (const workload::Outcome& o : r.outcomes) {
          on_time += o.first_token_s > 0 && o.ttft_s() <= o.slo.ttft_s;
        }
        ASSERT_LE(on_time, bound) << policy << ", seed " << seed;
        overloaded += bound < static_cast<double>(trace.arrivals.size());
        closest = std::min(closest, 1 - on_time / bound);
      }
    }
  }
  EXPECT_GT(overloaded, 9);
  EXPECT_LT(closest, 0.1) << "a bound that no policy comes near says nothing";
}

TEST(ClairvoyantBoundTest, PromptThatTakesTooLongAloneIsNeverOnTime) {
  const World world = TwoGpus("fineserve", {1.0}, true);
  workload::Trace trace;
  trace.models = {"one"};
  // 8 steps of 28.48 ms, and 26 of 512 tokens each.
  trace.arrivals = {{0, 0, {3900, 1}}};
  EXPECT_EQ(ClairvoyantBound(world, trace, {1}), 1u);
  trace.arrivals[0].lengths.input = 13'000;
  EXPECT_EQ(ClairvoyantBound(world, trace, {1}), 0u);
}

}  // namespace
}  // namespace fineserve::sim

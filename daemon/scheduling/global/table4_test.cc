// Table 4 of the FineServe paper: where its Algorithm 1 and Prism's put three
// models on two GPUs, from the authors' own measurements.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "daemon/scheduling/global/explain.h"
#include "daemon/scheduling/global/make_plan.h"
#include "daemon/scheduling/global/testdata/apex_profiles.h"

namespace fineserve::plan {
namespace {

using ::testing::HasSubstr;

constexpr double kSloScale = 20;  // Figure 10's; it scales all models alike

// A: 8B FP16, B: 8B FP8, C: 70B AWQ, ShareGPT's mean lengths, GPUs of 80 GB.
// The paper does not say the models' rates: all have the same here.
Snapshot TheThree(double rate) {
  Snapshot s;
  s.profiles = Tp1Profiles();
  const auto add = [&](const char* name, const char* architecture,
                       const char* quantisation, double its_rate) {
    ModelDemand m;
    m.name = name;
    m.architecture = architecture;
    m.quantisation = quantisation;
    m.rate = its_rate;
    m.prompt_tokens = 242;
    m.output_tokens = 327;
    m.slo_ttft_s = ReleasedSlo(*FindProfile(s.profiles, m), kSloScale);
    s.models.push_back(m);
  };
  add("A", "llama-3.1-8b", "org", rate);
  add("B", "llama-3.1-8b", "fp8_kv8", rate);
  add("C", "llama-3.1-70b", "awq", rate);
  s.gpus = {{"gpu-0", "node", 80e9}, {"gpu-1", "node", 80e9}};
  return s;
}

Plan PlanBy(const Snapshot& s, const std::string& policy,
            Tier footprint = Tier::kPaper) {
  Options options;
  options.policy = policy;
  options.problem.footprint = footprint;
  options.exact_steps = 0;
  const auto plan = MakePlan(s, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value_or(Plan());
}

// "A" -> "gpu-1".
std::map<std::string, std::string> Places(const Plan& plan) {
  std::map<std::string, std::string> places;
  for (const PlannedReplica& r : plan.replicas) {
    places[r.model] = r.gpus.empty() ? "" : r.gpus[0];
  }
  return places;
}

std::string Order(const Plan& plan) {
  std::string order;
  for (const Reason& r : plan.reasons) order += r.model;
  return order;
}

using Table = std::map<std::string, std::string>;
const Table kFineServe = {{"C", "gpu-0"}, {"A", "gpu-1"}, {"B", "gpu-1"}};
const Table kPrism = {{"B", "gpu-0"}, {"A", "gpu-1"}, {"C", "gpu-0"}};

TEST(Table4, FineServePutsCAloneAndBWithA) {
  for (const Tier tier : {Tier::kPaper, Tier::kReleased}) {
    for (const double rate : {0.25, 0.5, 1.0, 2.0}) {
      const Plan plan = PlanBy(TheThree(rate), "fineserve", tier);
      EXPECT_EQ(Places(plan), kFineServe) << TierName(tier) << ", " << rate;
      EXPECT_EQ(Order(plan), "CAB") << TierName(tier) << ", " << rate;
    }
  }
}

TEST(Table4, PrismPutsCWithB) {
  for (const char* policy : {"prism", "prism-mended"}) {
    for (const double rate : {0.25, 0.5, 1.0, 2.0}) {
      const Plan plan = PlanBy(TheThree(rate), policy);
      EXPECT_EQ(Places(plan), kPrism) << policy << ", " << rate;
      EXPECT_EQ(Order(plan), "BAC") << policy << ", " << rate;
    }
  }
}

TEST(Table4, ExplainSaysWhyInWords) {
  const auto b = Explain(PlanBy(TheThree(1), "fineserve"), "B");
  ASSERT_TRUE(b.ok());
  EXPECT_THAT(*b, HasSubstr("B is on gpu-1, with A."));
  EXPECT_THAT(*b, HasSubstr("It came 3rd, in the order of base footprint F_M"));
  EXPECT_THAT(*b, HasSubstr("mean MME times contested memory"));
  EXPECT_THAT(*b, HasSubstr("% worse"));
  const auto c = Explain(PlanBy(TheThree(1), "prism"), "C");
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(*c, HasSubstr("C is on gpu-0, with B."));
  EXPECT_THAT(*c, HasSubstr("the lowest wins"));
}

}  // namespace
}  // namespace fineserve::plan

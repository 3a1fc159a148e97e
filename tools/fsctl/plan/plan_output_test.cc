#include "tools/fsctl/plan/plan_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/fsctl/plan/what_if.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

constexpr double kGib = 1024.0 * 1024 * 1024;

plan::Snapshot Cluster() {
  plan::Snapshot s;
  s.gpus = {{"gpu-1", "n", 80 * kGib}, {"gpu-0", "n", 80 * kGib}};
  s.models = {{"chat", "llama", "fp16", 1, 2.0, 200, 300, 1.0},
              {"code<1>", "llama", "fp16", 1, 1.0, 200, 300, 1.0}};
  return s;
}

plan::Plan Made() {
  plan::Plan p;
  p.policy = "fineserve-opt";
  p.worth = {1, 600, 1200, 0};
  p.demand = 900;
  p.replicas = {
      {"chat", 0, {"gpu-1"}, 2, 15 * kGib, kGib, 4 * kGib, 9 * kGib, 600},
      {"code<1>", 0, {}, 0, 15 * kGib, kGib, 0, 0, 0}};
  p.troubles = {{"code<1>", "code<1>: is 1.0 GiB short on gpu-0"}};
  p.gap = {800, 0.25, true, 2};
  p.lost = {{"gpu-1", 1, 600, 1200}};
  return p;
}

TEST(PlanOutput, ShowsWhatIsWhereAndWhatIsContested) {
  const std::string text = PlanText(Cluster(), Made(), false);
  EXPECT_THAT(text, HasSubstr("chat"));
  EXPECT_THAT(text, HasSubstr("no place"));
  EXPECT_THAT(text, HasSubstr("60 GiB"));  // 80 − 15 − 1 − 4
  EXPECT_THAT(text, HasSubstr("1 of 2 models hosted, 600 of 900 tokens/s"));
  EXPECT_THAT(text, HasSubstr("25.00 % below the best plan (800 tokens/s, "
                              "exact)"));
  EXPECT_THAT(text, HasSubstr("losing gpu-1: 1 model, 600 tokens/s"));
  EXPECT_THAT(text, HasSubstr("1.0 GiB short on gpu-0"));
}

TEST(PlanOutput, JsonHasTheSameFigures) {
  const auto json = nlohmann::json::parse(PlanJson(Cluster(), Made()));
  EXPECT_EQ(json["hosted"], 1);
  EXPECT_EQ(json["replicas"][0]["gpus"][0], "gpu-1");
  EXPECT_EQ(json["replicas"][1]["gpus"].size(), 0u);
  EXPECT_EQ(json["gap"]["relative"], 0.25);
  EXPECT_EQ(json["gpu_lost"][0]["tokens_per_s"], 600);
}

TEST(PlanOutput, SvgDrawsEveryGpuAndEscapesNames) {
  plan::Plan p = Made();
  p.replicas[1].gpus = {"gpu-0"};
  const std::string svg = PlanSvg(Cluster(), p);
  EXPECT_THAT(svg, HasSubstr(">gpu-0</text>"));
  EXPECT_THAT(svg, HasSubstr("chat KV floor: 4.0 GiB"));
  EXPECT_THAT(svg, HasSubstr("contested: 60.0 GiB"));
  EXPECT_THAT(svg, HasSubstr("code&lt;1&gt; weights"));
  EXPECT_THAT(svg, testing::Not(HasSubstr("code<1>")));
}

TEST(WhatIf, ChangesRatesGpusAndModels) {
  plan::Snapshot s = Cluster();
  ASSERT_TRUE(ApplyWhatIf("rate:chat=2x", &s).ok());
  EXPECT_EQ(s.models[0].rate, 4);
  ASSERT_TRUE(ApplyWhatIf("rate:chat=0.5", &s).ok());
  EXPECT_EQ(s.models[0].rate, 0.5);
  ASSERT_TRUE(ApplyWhatIf("gpus=+2", &s).ok());
  EXPECT_EQ(s.gpus.size(), 4u);
  ASSERT_TRUE(ApplyWhatIf("gpus=-3", &s).ok());
  ASSERT_EQ(s.gpus.size(), 1u);
  EXPECT_EQ(s.gpus[0].name, "gpu-0");
  ASSERT_TRUE(ApplyWhatIf("add:chat", &s).ok());
  EXPECT_EQ(s.models.back().name, "chat-more");
}

TEST(WhatIf, AnythingElseIsOneLineWithTheFix) {
  for (const char* text : {"rate:nobody=2x", "rate:chat=fast", "rate:chat=-1x",
                           "rate:chat", "rate:chat=nan", "gpus=0", "gpus=-2",
                           "gpus=many", "add:nobody", "more"}) {
    plan::Snapshot s = Cluster();
    const absl::Status status = ApplyWhatIf(text, &s);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

}  // namespace
}  // namespace fineserve::fsctl

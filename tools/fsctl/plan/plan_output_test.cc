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

// Returns the same plan, with 100 GiB of host memory, part of which two places
// take.
plan::Plan Resting() {
  plan::Plan p = Made();
  p.replicas[0].context_bytes = kGib / 2;
  p.resting = {{"chat", "gpu-0", "n", kGib / 2, 6 * kGib, 16 * kGib},
               {"code<1>", "gpu-0", "n", kGib / 2, 6 * kGib, 16 * kGib}};
  p.not_resting = {{plan::NotResting::Why::kHostMemory, "code<1>", 3 * kGib,
                    "code<1>", "n", 1}};
  p.hosts = {{"n", 100 * kGib, 18 * kGib, 32 * kGib}};
  return p;
}

TEST(PlanOutput, SaysNothingOfHostsAndContextsThatAreNotKnown) {
  const std::string text = PlanText(Cluster(), Made(), false);
  EXPECT_EQ(
      text.substr(0, text.find("policy")),
      "MODEL    GPUS      REQUESTS/S  WEIGHTS  ACTIVATIONS  FLOOR     KV  "
      "TOKENS/S\n"
      "chat     gpu-1              2   15 GiB        1 GiB  4 GiB  9 GiB  "
      "     600\n"
      "code<1>  no place           -   15 GiB        1 GiB      -      -  "
      "       -\n"
      "\n"
      "GPU    MEMORY  CONTESTED  MODELS\n"
      "gpu-0  80 GiB     80 GiB  -\n"
      "gpu-1  80 GiB     60 GiB  chat\n"
      "\n");
}

TEST(PlanOutput, ShowsWhatRestsWhereAndEachNodesHostMemory) {
  const std::string text = PlanText(Cluster(), Resting(), false);
  EXPECT_EQ(
      text.substr(0, text.find("policy")),
      "MODEL    GPUS      REQUESTS/S  WEIGHTS  ACTIVATIONS  FLOOR     KV  "
      "TOKENS/S  CONTEXT\n"
      "chat     gpu-1              2   15 GiB        1 GiB  4 GiB  9 GiB  "
      "     600  512 MiB\n"
      "code<1>  no place           -   15 GiB        1 GiB      -      -  "
      "       -      0 B\n"
      "\n"
      "GPU    MEMORY  CONTESTED  MODELS  RESTING\n"
      "gpu-0  80 GiB     79 GiB  -       chat, code<1>\n"
      "gpu-1  80 GiB   59.5 GiB  chat    -\n"
      "\n"
      "NODE  HOST MEMORY  PROCESSES   STORE    FREE\n"
      "n         100 GiB     18 GiB  32 GiB  50 GiB\n"
      "\n");
}

TEST(PlanOutput, JsonHasWhatRestsOnlyIfHostMemoryIsKnown) {
  const auto without = nlohmann::json::parse(PlanJson(Cluster(), Made()));
  for (const char* key : {"nodes", "resting", "not_resting"}) {
    EXPECT_FALSE(without.contains(key)) << key;
  }
  EXPECT_FALSE(without["replicas"][0].contains("context_bytes"));
  const auto json = nlohmann::json::parse(PlanJson(Cluster(), Resting()));
  EXPECT_EQ(json["replicas"][0]["context_bytes"], kGib / 2);
  EXPECT_EQ(json["nodes"],
            nlohmann::json::parse(R"([{"node": "n", "host_bytes": 107374182400,
                "process_bytes": 19327352832, "store_bytes": 34359738368}])"));
  EXPECT_EQ(json["resting"][1],
            nlohmann::json::parse(R"({"model": "code<1>", "gpu": "gpu-0",
                "node": "n", "context_bytes": 536870912,
                "process_bytes": 6442450944, "store_bytes": 17179869184})"));
  EXPECT_EQ(json["not_resting"],
            nlohmann::json::parse(R"([{"model": "code<1>", "node": "n",
                "places": 1, "why": "host memory", "culprit": "code<1>",
                "missing_bytes": 3221225472}])"));
}

TEST(PlanOutput, SvgDrawsContextsWhereThereAreSome) {
  EXPECT_THAT(PlanSvg(Cluster(), Made()), testing::Not(HasSubstr("context<")));
  const std::string svg = PlanSvg(Cluster(), Resting());
  EXPECT_THAT(svg, HasSubstr(">contexts</text>"));
  EXPECT_THAT(svg, HasSubstr("chat context: 0.5 GiB"));
  EXPECT_THAT(svg, HasSubstr("code&lt;1&gt; resting context: 0.5 GiB"));
}

TEST(WhatIf, SaysHowManyPlacesRestIfHostMemoryIsKnown) {
  EXPECT_THAT(WhatIfText(Made(), Made()), testing::Not(HasSubstr("rest")));
  EXPECT_THAT(WhatIfText(Made(), Resting()),
              HasSubstr(", 2 instead of 0 places rest\n"));
}

TEST(WhatIf, HostIsTheMemoryOfEveryNode) {
  plan::Snapshot s = Cluster();
  s.gpus[1].node = "m";
  s.nodes = {{"n", kGib}};
  ASSERT_TRUE(ApplyWhatIf("host=512GiB", &s).ok());
  EXPECT_EQ(s.nodes,
            (std::vector<plan::Node>{{"m", 512 * kGib}, {"n", 512 * kGib}}));
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
  for (const char* text :
       {"rate:nobody=2x", "rate:chat=fast", "rate:chat=-1x", "rate:chat",
        "rate:chat=nan", "gpus=0", "gpus=-2", "gpus=many", "host=0",
        "host=much", "add:nobody", "more"}) {
    plan::Snapshot s = Cluster();
    const absl::Status status = ApplyWhatIf(text, &s);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

}  // namespace
}  // namespace fineserve::fsctl

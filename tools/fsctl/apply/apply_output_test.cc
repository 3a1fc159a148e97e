#include "tools/fsctl/apply/apply_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

config::FleetDescription Before() {
  return {{"model chat", {{"slo_ttft_ms", "800"}}},
          {"engine a", {{"command", "serve"}, {"url", "http://h:1"}}},
          {"engine b", {{"command", "serve"}, {"url", "http://h:2"}}},
          {"engine c", {{"command", ""}, {"url", "http://h:3"}}}};
}

apply::Answer ProcessOf(const std::string& program) {
  apply::Answer process;
  process.process = program;
  process.fleet = Before();
  return process;
}

TEST(ApplyOutputTest, ChangesAreOneLineASectionAndOneAKey) {
  config::FleetDescription after = Before();
  after["model chat"]["slo_ttft_ms"] = "900";
  after.erase("engine b");
  after["engine d"] = {{"command", "serve"}};
  EXPECT_EQ(
      ChangesText(config::Differences(Before(), after), false),
      "- engine b\n+ engine d\n~ model chat\n    slo_ttft_ms: 800 → 900\n");
  EXPECT_EQ(
      ChangesJson(config::Differences(Before(), after))[2]["keys"][0]["after"],
      "900");
}

TEST(ApplyOutputTest, EnginesAreStartedRestartedAndEnded) {
  config::FleetDescription after = Before();
  after["engine a"]["command"] = "serve --fast";
  after["engine c"]["command"] = "serve";
  after["engine d"] = {{"command", "serve"}};
  after.erase("engine b");
  const EngineEffects effects = EffectsOnEngines(ProcessOf("fsctl up"), after);
  EXPECT_THAT(effects.started, ElementsAre("c", "d"));
  EXPECT_THAT(effects.restarted, ElementsAre("a"));
  EXPECT_THAT(effects.ended, ElementsAre("b"));
  EXPECT_EQ(EffectOn(ProcessOf("fsctl up"), after),
            "starts c, d; drains and restarts a; drains and ends b");
  EXPECT_THAT(EffectOn(ProcessOf("fineserved"), after),
              HasSubstr("takes 4 changes"));
}

TEST(ApplyOutputTest, ChangesWithoutARestartAreMarked) {
  config::FleetDescription after = Before();
  EXPECT_EQ(EffectOn(ProcessOf("fsctl up"), after), "has it already");
  after["model chat"]["slo_ttft_ms"] = "900";
  EXPECT_EQ(EffectOn(ProcessOf("fsctl up"), after),
            "leaves its engines as they are");
}

// An engine that fsctl up does not start may be added or removed.
TEST(ApplyOutputTest, EnginesWithoutACommandAreNotOurs) {
  config::FleetDescription after = Before();
  after.erase("engine c");
  after["engine e"] = {{"command", ""}};
  EXPECT_EQ(EffectOn(ProcessOf("fsctl up"), after),
            "leaves its engines as they are");
}

}  // namespace
}  // namespace fineserve::fsctl

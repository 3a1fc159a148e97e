#include "tools/fsctl/launch/run_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class RunPlanTest : public ::testing::Test {
 protected:
  RunPlanTest() {
    unsetenv("LD_PRELOAD");
    unsetenv("LD_LIBRARY_PATH");
  }
};

TEST_F(RunPlanTest, PlainPlanSetsOnlyShimAndEngine) {
  EXPECT_THAT(PlanEnvironment({"/lib/shim.so", "e", {}, "", ""}),
              ElementsAre(Pair("LD_PRELOAD", "/lib/shim.so"),
                          Pair("FINESERVE_ENGINE", "e")));
}

TEST_F(RunPlanTest, FullPlanSetsEverything) {
  EXPECT_THAT(
      PlanEnvironment({"/s.so",
                       "e",
                       {64 << 20, 7},
                       "/emu",
                       "/run/x",
                       "1",
                       {{"CUDA_VISIBLE_DEVICES", "GPU-1"}}}),
      ElementsAre(Pair("LD_PRELOAD", "/s.so"), Pair("FINESERVE_ENGINE", "e"),
                  Pair("FINESERVE_KV_SIZES", "67108864,7"),
                  Pair("LD_LIBRARY_PATH", "/emu"),
                  Pair("FINESERVE_RUNTIME_DIR", "/run/x"),
                  Pair("FINESERVE_VIEW", "1"),
                  Pair("CUDA_VISIBLE_DEVICES", "GPU-1")));
}

TEST_F(RunPlanTest, WhatWasPreloadedStaysBehindTheShim) {
  setenv("LD_PRELOAD", "libjemalloc.so", 1);
  setenv("LD_LIBRARY_PATH", "/cuda", 1);
  const Environment e = PlanEnvironment({"/s.so", "e", {}, "/emu", ""});
  EXPECT_EQ(e[0].second, "/s.so:libjemalloc.so");
  EXPECT_EQ(e[2].second, "/emu:/cuda");
  unsetenv("LD_PRELOAD");
  unsetenv("LD_LIBRARY_PATH");
}

TEST_F(RunPlanTest, DefaultNameIsTheCommandsOwnWithThePid) {
  EXPECT_EQ(DefaultEngineName("/usr/bin/vllm", 4711), "vllm-4711");
  EXPECT_EQ(DefaultEngineName("vllm", 1), "vllm-1");
}

TEST_F(RunPlanTest, LongNameIsCutInFrontSoThatThePidStays) {
  const std::string name = DefaultEngineName(std::string(100, 'x'), 4711);
  EXPECT_EQ(name.size(), 63u);
  EXPECT_THAT(name, HasSubstr("x-4711"));
}

TEST_F(RunPlanTest, SizesAreParsedOrRefusedByName) {
  EXPECT_THAT(*ParseKvSizes({"64MiB", "4096"}), ElementsAre(64 << 20, 4096));
  EXPECT_THAT(*ParseKvSizes({}), IsEmpty());
  for (const char* bad : {"64 apples", "0", "", "-1"}) {
    const auto sizes = ParseKvSizes({bad});
    EXPECT_THAT(std::string(sizes.status().message()),
                HasSubstr(std::string("--kv-size ") + bad));
  }
  EXPECT_FALSE(ParseKvSizes(std::vector<std::string>(33, "1MiB")).ok());
  EXPECT_TRUE(ParseKvSizes(std::vector<std::string>(32, "1MiB")).ok());
}

TEST_F(RunPlanTest, EngineNameHasToFitTheContract) {
  EXPECT_TRUE(CheckEngineName("").ok());
  EXPECT_TRUE(CheckEngineName(std::string(63, 'x')).ok());
  EXPECT_FALSE(CheckEngineName(std::string(64, 'x')).ok());
  EXPECT_FALSE(CheckEngineName("a\nb").ok());
}

}  // namespace
}  // namespace fineserve::fsctl

#include "tools/fsctl/run/run_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr const char* kSaysView[] = {"FINESERVE_VIEW", "FINESERVE_DISABLE",
                                     "FINESERVE_KV_SIZES"};

class RunPlanTest : public ::testing::Test {
 protected:
  RunPlanTest() {
    unsetenv("LD_PRELOAD");
    unsetenv("LD_LIBRARY_PATH");
    for (const char* variable : kSaysView) unsetenv(variable);
  }
};

struct PluginCase {
  std::vector<std::string> command;
  bool has_plugin;
};

TEST_F(RunPlanTest, EngineWithAPluginIsKnownByItsFileNameOrItsModule) {
  for (const PluginCase& c :
       {PluginCase{{"vllm", "serve", "m"}, true},
        {{"/opt/venv/bin/vllm", "serve", "m"}, true},
        {{"python", "-m", "vllm.entrypoints.openai.api_server"}, true},
        {{"/usr/bin/python3.11", "-u", "-m", "vllm", "serve"}, true},
        {{"python3", "-X", "dev", "-W", "error", "-mvllm"}, true},
        {{"python3", "-um", "vllm.entrypoints.cli.main"}, true},
        {{"python3", "-I", "/opt/venv/bin/vllm", "serve"}, true},
        {{"sglang", "serve", "--model-path", "m"}, true},
        {{"python3", "-m", "sglang.launch_server", "--model-path", "m"}, true},
        {{"/usr/bin/python3.11", "-msglang.launch_server"}, true},
        {{"python3", "/opt/venv/bin/sglang", "serve"}, true},
        {{"sglang-router"}, false},
        {{"python3", "-m", "sglang_router.launch_router"}, false},
        {{"python3", "launch_server.py", "sglang"}, false},
        {{"my-vllm", "serve"}, false},
        {{"vllm/engine"}, false},
        {{"echo", "vllm"}, false},
        {{"bash", "-m", "vllm"}, false},
        {{"python3"}, false},
        {{"python3", ""}, false},
        {{"python3", "-m"}, false},
        {{"python3", "-m", "vllmx", "-m", "vllm"}, false},
        {{"python3", "server.py", "-m", "vllm"}, false},
        {{"python3", "-c", "pass", "-m", "vllm"}, false},
        {{"python3", "-W", "vllm"}, false},
        {{}, false}}) {
    EXPECT_EQ(HasPlugin(c.command), c.has_plugin)
        << ::testing::PrintToString(c.command);
  }
}

TEST_F(RunPlanTest, EngineWithAPluginGetsAViewUnlessTheUserSaidOtherwise) {
  const std::vector<std::string> vllm = {"vllm", "serve", "m"};
  EXPECT_EQ(ChooseView(vllm, {}), "required");
  EXPECT_EQ(ChooseView({"python3", "-m", "sglang.launch_server"}, {}),
            "required");
  EXPECT_EQ(ChooseView({"./engine"}, {}), "");
  EXPECT_EQ(ChooseView(vllm, {64 << 20}), "") << "whole allocations";
  for (const char* variable : kSaysView) {
    setenv(variable, "1", 1);
    EXPECT_EQ(ChooseView(vllm, {}), "") << variable;
    unsetenv(variable);
  }
}

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
                       {{"CUDA_VISIBLE_DEVICES", "GPU-1"}},
                       /*may_evict=*/true}),
      ElementsAre(Pair("LD_PRELOAD", "/s.so"), Pair("FINESERVE_ENGINE", "e"),
                  Pair("FINESERVE_KV_SIZES", "67108864,7"),
                  Pair("LD_LIBRARY_PATH", "/emu"),
                  Pair("FINESERVE_RUNTIME_DIR", "/run/x"),
                  Pair("FINESERVE_VIEW", "1"), Pair("FINESERVE_EVICT", "auto"),
                  Pair("CUDA_VISIBLE_DEVICES", "GPU-1")));
}

TEST_F(RunPlanTest, FormerPreloadStaysBehindTheShim) {
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

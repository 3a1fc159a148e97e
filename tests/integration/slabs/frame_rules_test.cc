// KV that is recognised by native frames, end to end: the daemon's rules, an
// engine that only has the names, and what fsctl explain says.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr char kFourMiB[] = "4194304";

class FrameRulesTest : public Site {
 protected:
  std::string Named(const std::string& library) {
    return Program("../lib/named/" + library);
  }

  // Starts an engine that makes one allocation of 4 MiB (one slab).
  std::unique_ptr<Process> Start(const std::string& library,
                                 const std::string& function) {
    auto engine =
        LaunchPreloaded({"named_engine", Named(library), function, kFourMiB});
    EXPECT_EQ(engine->ReadLineWith("ready"), "ready") << engine->Stderr();
    return engine;
  }

  std::unique_ptr<Process> StartDaemonWith(const std::string& toml) {
    const std::string path = folder() + "/fineserve.toml";
    std::ofstream(path) << toml;
    return StartDaemon({"--config", path});
  }

  std::string Explain(const Process& engine) {
    return Fsctl({"explain", std::to_string(engine.pid())}).out;
  }
};

TEST_F(FrameRulesTest, LlamaCppsKvIsRedirectedAndItsWeightsAreNot) {
  const auto daemon = StartDaemon();
  const auto kv = Start("named_llama.so", "allocate_kv");
  EXPECT_EQ(SlabsOf(kv->pid()), 1u);
  EXPECT_THAT(Explain(*kv),
              HasSubstr("its native frames match (rule \"llama.cpp\")"));
  const auto weights = Start("named_llama.so", "allocate_weights");
  EXPECT_EQ(SlabsOf(weights->pid()), 0u);
  EXPECT_THAT(Explain(*weights), HasSubstr("no rule says that it is KV"));
}

TEST_F(FrameRulesTest, TensorRtLlmsPoolsAreRedirected) {
  const auto daemon = StartDaemon();
  const auto engine = Start("named_trtllm.so", "allocate_kv");
  EXPECT_EQ(SlabsOf(engine->pid()), 1u);
  EXPECT_THAT(Explain(*engine), HasSubstr("(rule \"tensorrt-llm\")"));
}

TEST_F(FrameRulesTest, VllmsCumemIsRedirectedOnlyWhereItsRuleIsOn) {
  auto daemon = StartDaemon();
  const auto without = Start("cumem_allocator.abi3.so", "allocate_kv");
  EXPECT_EQ(SlabsOf(without->pid()), 0u);
  daemon.reset();
  daemon = StartDaemonWith("shipped_rules = [\"vllm-cumem\"]\n");
  const auto engine = Start("cumem_allocator.abi3.so", "allocate_kv");
  EXPECT_EQ(SlabsOf(engine->pid()), 1u);
  EXPECT_THAT(Explain(*engine), HasSubstr("(rule \"vllm-cumem\")"));
}

TEST_F(FrameRulesTest, ExclusionComesBeforeADeclaredSize) {
  const auto daemon = StartDaemonWith(
      "[[engine]]\nname = \"*\"\nkv_sizes = [\"4MiB\"]\n"
      "[[rule]]\nname = \"weights\"\nkv = false\n"
      "frames = [\"allocate_weights\"]\n");
  const auto weights = Start("named_llama.so", "allocate_weights");
  EXPECT_EQ(SlabsOf(weights->pid()), 0u);
  EXPECT_THAT(Explain(*weights),
              HasSubstr("its native frames are excluded (rule \"weights\")"));
  const auto other = Start("named_trtllm.so", "allocate_kv");
  EXPECT_EQ(SlabsOf(other->pid()), 1u);
}

TEST_F(FrameRulesTest, RuleOfAnotherEngineDoesNotCount) {
  const auto daemon = StartDaemonWith(
      "shipped_rules = []\n[[rule]]\nname = \"x\"\nengine = \"vllm-*\"\n"
      "frames = [\"allocate_kv\"]\n");
  const auto engine = Start("named_llama.so", "allocate_kv");
  EXPECT_EQ(SlabsOf(engine->pid()), 0u);
}

TEST_F(FrameRulesTest, StrippedLibraryIsNotGuessedAndSaysWhy) {
  const auto daemon = StartDaemon();
  const auto engine = Start("named_llama_stripped.so", "allocate_kv");
  EXPECT_EQ(SlabsOf(engine->pid()), 0u);
  const std::string said = Explain(*engine);
  EXPECT_THAT(said, HasSubstr("no rule says that it is KV; "));
  EXPECT_THAT(said, HasSubstr("had no name that a rule could match"));
}

TEST_F(FrameRulesTest, ExplainNamesTheFunctionsOfTheStack) {
  const auto daemon = StartDaemon();
  const auto engine = Start("named_llama.so", "allocate_kv");
  const std::string said = Explain(*engine);
  EXPECT_THAT(said, HasSubstr("ggml_backend_cuda_buffer_type_alloc_buffer("));
  EXPECT_THAT(said, HasSubstr("llama_kv_cache::llama_kv_cache(unsigned long)"));
}

TEST_F(FrameRulesTest, DoctorNamesTheHooksAndReconcilesTheMemory) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB");
  const std::string said = Fsctl({"doctor", std::to_string(engine->pid())}).out;
  EXPECT_THAT(said, ContainsRegex("preload +ok"));
  EXPECT_THAT(said, HasSubstr("cuMemAlloc_v2"));
  EXPECT_THAT(said, ContainsRegex("memory +ok"));
  EXPECT_THAT(said, HasSubstr("16 MiB are in slabs"));
}

TEST_F(FrameRulesTest, PythonHostIsJudgedByItsNativeFrames) {
  if (RunToEnd({"python3", "--version"}, environment()).code != 0) {
    GTEST_SKIP() << "there is no python3";
  }
  const auto daemon = StartDaemon();
  const std::string script =
      "import ctypes, sys\n"
      "cuda = ctypes.CDLL('libcuda.so.1')\n"
      "context = ctypes.c_void_p()\n"
      "assert cuda.cuInit(0) == 0\n"
      "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
      "assert cuda.cuCtxSetCurrent(context) == 0\n"
      "engine = ctypes.CDLL('" +
      Named("named_llama.so") +
      "')\n"
      "engine.allocate_kv(ctypes.c_size_t(4 << 20))\n"
      "print('ready', flush=True)\n"
      "sys.stdin.read()\n";
  Process python({"python3", "-c", script}, EngineEnvironment());
  ASSERT_EQ(python.ReadLineWith("ready"), "ready") << python.Stderr();
  EXPECT_EQ(SlabsOf(python.pid()), 1u);
  EXPECT_THAT(Explain(python), HasSubstr("(rule \"llama.cpp\")"));
}

}  // namespace
}  // namespace fineserve::integration

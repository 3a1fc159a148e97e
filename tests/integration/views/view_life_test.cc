// The begin and end of views, and processes that get no view.

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/integration/views/view_site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(ViewTest, EnginesGoOnWithWhatTheyHaveWithoutTheirDaemon) {
  auto daemon = StartPool();
  const auto packed = Start(Packed());
  const auto layers = Start(Layers({"--mode", "guarded"}));
  Want(*packed, 4 * kPackedBlocks);
  Want(*layers, 3 * kLayersBlocks);
  ASSERT_TRUE(Gets(*packed, 4));
  ASSERT_TRUE(Gets(*layers, 3));
  Use(*packed, kPackedBlocks);
  Use(*layers, kLayersBlocks);
  daemon->EndBy(SIGKILL);
  for (const auto* engine : {&packed, &layers}) {  // they find out
    EXPECT_TRUE(
        Eventually([&] { return (*engine)->Ask("idle 20") == "ok idle=-3"; }));
  }
  Use(*packed, 3 * kPackedBlocks);
  Use(*layers, 2 * kLayersBlocks);
  EXPECT_THAT(packed->Ask("alloc 1000"), StartsWith("error 5")) << "exhausted";
  packed->Ask("free 500");
  Use(*packed, 400, "scan");
  const auto next = StartPool();
  EXPECT_THAT(next->Stderr(), HasSubstr("still held by"));
  EXPECT_THAT(packed->Ask("verify"), StartsWith("ok"));
  EXPECT_THAT(layers->Ask("verify"), StartsWith("ok"));
  ExpectEnd(*packed);
  ExpectEnd(*layers);
}

TEST_F(ViewTest, ClosedViewsSlabsComeBackWhileItsEngineLives) {
  const auto daemon = StartPool();
  const auto packed = Start(Packed());
  Want(*packed, 5 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 5));
  EXPECT_THAT(packed->Ask("release"), "ok released");
  EXPECT_TRUE(EventuallyFree(16));
  EXPECT_THAT(packed->Ask("alloc 1"), StartsWith("error 2")) << "no view";
}

TEST_F(ViewTest, WithoutThePluginsWordThereIsNoActivation) {
  const auto daemon = StartPool();
  const auto engine = Launch(Packed({"--progress", "2"}));
  EXPECT_THAT(engine->ReadLine(), StartsWith("error fs_kv_activate 2 "));
  EXPECT_EQ(engine->Wait(), 5);
  EXPECT_TRUE(EventuallyFree(16));
}

TEST_F(ViewTest, FormatThatSlabsDoNotHoldIsRefusedWithTheSlabThatDoes) {
  const auto daemon = StartPool();
  const auto engine = Launch({"--planes", "16", "--page", "64KiB"});
  EXPECT_THAT(engine->ReadLine(), HasSubstr("use slabs of "));
  EXPECT_EQ(engine->Wait(), 5);
}

TEST_F(ViewTest, EngineInCTakesSlabsIntoItsOwnPoolAndGivesThemBack) {
  const auto daemon = StartPool();
  const auto other = Start(Packed());
  Process engine({Program("plain_engine")}, EngineEnvironment());
  EXPECT_EQ(engine.ReadLine(), "ok slabs=15 blocks=1920 returned=14")
      << engine.Stderr();
  EXPECT_EQ(engine.Wait(), 0);
  EXPECT_TRUE(EventuallyFree(15));
  Want(*other, 16 * kPackedBlocks);
  EXPECT_TRUE(Gets(*other, 16));
  Use(*other, 15 * kPackedBlocks);
  ExpectEnd(*other);
}

TEST_F(ViewTest, EngineInCWithoutThePreloadSaysWhatItNeeds) {
  Process::Environment environment = EngineEnvironment();
  environment.erase("LD_PRELOAD");
  Process engine({Program("plain_engine")}, environment);
  EXPECT_EQ(engine.Wait(), 5);
  EXPECT_THAT(engine.Stderr(), HasSubstr("needs libfineserve_shim.so"));
}

// A process that was started for a view gets a view, or no device memory.
TEST_F(ViewTest, RequiredViewLetsNoEngineRunWithoutItsPlugin) {
  const auto daemon = StartPool();
  const Process::Environment required = {{"FINESERVE_VIEW", "required"}};
  const auto stock = LaunchEngine("8MiB", {}, required);
  EXPECT_THAT(stock->ReadLine(), HasSubstr("CUDA_ERROR_NOT_PERMITTED"));
  EXPECT_EQ(stock->Wait(), 3);
  EXPECT_THAT(stock->Stderr(), HasSubstr("has replaced its block pool"));
  const std::string lines = stock->Stderr();
  size_t said = 0;
  for (size_t at = 0; (at = lines.find("fineserve: ", at)) != lines.npos;
       ++at) {
    ++said;
  }
  EXPECT_EQ(said, 1u) << lines;

  const auto half =
      Launch(Packed({"--progress", "1", "--before", "1MiB"}), required);
  EXPECT_EQ(half->ReadLine(), "before CUDA_ERROR_NOT_PERMITTED");
  EXPECT_NE(half->Wait(), 0);

  const auto whole =
      Launch(Packed({"--before", "1MiB"}), {{"FINESERVE_VIEW", "required"}});
  EXPECT_EQ(whole->ReadLine(), "before CUDA_SUCCESS");
  EXPECT_THAT(whole->ReadLine(), StartsWith("ready"));
  ASSERT_TRUE(Gets(*whole, 1));
  Use(*whole, 10);
  ExpectEnd(*whole);
}

TEST_F(ViewTest, RequiredViewLetsNoEngineRunWithoutItsDaemon) {
  const auto engine = Launch(Packed(), {{"FINESERVE_VIEW", "required"}});
  EXPECT_THAT(engine->ReadLine(), StartsWith("error fs_kv_register 3 "));
  EXPECT_EQ(engine->Wait(), 5);
}

TEST_F(ViewTest, ForkedChildHasNoView) {
  const auto daemon = StartPool();
  const auto engine = Start(Packed());
  ASSERT_TRUE(Gets(*engine, 1));
  EXPECT_EQ(engine->Ask("fork"), "ok child=7");
  Use(*engine, 10);
}

TEST_F(ViewTest, ExplainNamesTheTensorsOfAView) {
  const auto daemon = StartPool();
  const auto layers = Start(Layers());
  const Finished explained = Fsctl({"explain", std::to_string(layers->pid())});
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("view"));
}

}  // namespace
}  // namespace fineserve::integration

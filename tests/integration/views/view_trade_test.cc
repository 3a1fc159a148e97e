// Slabs that move from one engine with a view to another: an engine's bytes
// stay, and slabs that it gets are zero.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <random>

#include "tests/integration/views/view_site.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ViewTest, EnginesOfTwoFormatsTradeSlabsAndKeepTheirBytes) {
  const auto daemon = StartPool();
  const auto packed = Start(Packed());
  const auto layers = Start(Layers());
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 15)) << "all but the other's floor";
  Use(*packed, 15 * kPackedBlocks);
  Want(*layers, 16 * kLayersBlocks);
  layers->Ask("idle 50");
  EXPECT_EQ(Stat(*layers, "leased"), 1u) << "all is in use";
  packed->Ask("free " + std::to_string(12 * kPackedBlocks));
  Want(*packed, 2 * kPackedBlocks);
  ASSERT_TRUE(Gets(*layers, 8))
      << "its fair share at least" << daemon->Stderr();
  EXPECT_THAT(packed->Ask("verify"), StartsWith("ok"));
  Use(*layers, 8 * kLayersBlocks);
  Want(*layers, 0);
  layers->Ask("free " + std::to_string(6 * kLayersBlocks));
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Eventually([&] {
    layers->Ask("step");
    packed->Ask("idle 20");
    return Stat(*packed, "leased") >= 12;
  }));
  Use(*packed, 9 * kPackedBlocks, "scan");
  EXPECT_THAT(layers->Ask("verify"), StartsWith("ok"));
  EXPECT_EQ(Stat(*layers, "calls_serving"), 0u);
  EXPECT_EQ(Stat(*packed, "calls_serving"), 0u);
  EXPECT_GT(Stat(*layers, "returned"), 0u);
  ExpectEnd(*packed);
  ExpectEnd(*layers);
  EXPECT_TRUE(EventuallyFree(16));
}

// The engine neither steps nor waits, so its neighbour gets what it has and
// does not use.
TEST_F(ViewTest, EngineThatDoesNothingKeepsNoSlabButItsFloorFromANeighbour) {
  const auto daemon = StartPool();
  for (const char* mode : {"view", "guarded"}) {
    const auto packed = Start(Packed({"--mode", mode}));
    const auto layers = Start(Layers());
    Want(*packed, 16 * kPackedBlocks);
    ASSERT_TRUE(Gets(*packed, 15));
    Use(*packed, 14 * kPackedBlocks, "scan");
    packed->Ask("free " + std::to_string(13 * kPackedBlocks - 1));
    Want(*layers, 16 * kLayersBlocks);
    EXPECT_TRUE(Eventually([&] {
      layers->Ask("idle 20");
      return Stat(*layers, "leased") >= 13;
    })) << mode
        << ": all but the two slabs with its blocks, and one to spare";
    EXPECT_THAT(packed->Ask("verify"), StartsWith("ok"));
    packed->Ask("free " + std::to_string(kPackedBlocks + 1));
    EXPECT_TRUE(Eventually([&] {
      layers->Ask("idle 20");
      return Stat(*layers, "leased") == 15;
    })) << mode
        << ": all but its floor";
    Use(*layers, 15 * kLayersBlocks);
    ExpectEnd(*layers);
    ExpectEnd(*packed);
  }
}

TEST_F(ViewTest, KilledEnginesSlabsGoToTheOtherAsZeros) {
  const auto daemon = StartPool();
  const auto packed = Start(Packed());
  const auto layers = Start(Layers());
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 15));
  Use(*packed, 15 * kPackedBlocks);
  Want(*layers, 16 * kLayersBlocks);
  packed->EndBy(SIGKILL);
  ASSERT_TRUE(Gets(*layers, 16));
  Use(*layers, 16 * kLayersBlocks);
  ExpectEnd(*layers);
}

// Every block of every slab holds NaN when the slab leaves, given back or left
// by a death. The next engine, of another format, finds zeros.
TEST_F(ViewTest, NoNanOfAnotherFormatIsVisibleAfterALease) {
  const auto daemon = StartPool();
  for (const bool dies : {false, true}) {
    const auto packed = Start(Packed({"--watermark", "4000"}));
    ASSERT_TRUE(Gets(*packed, 16));
    Take(*packed, 16 * kPackedBlocks);
    EXPECT_THAT(packed->Ask("nan"), StartsWith("ok nan="));
    if (dies) {
      packed->EndBy(SIGKILL);
    } else {
      ExpectEnd(*packed);
    }
    for (const char* mode : {"view", "guarded"}) {
      const auto layers =
          Start(Layers({"--mode", mode, "--watermark", "1000"}));
      ASSERT_TRUE(Gets(*layers, 16));
      Use(*layers, 16 * kLayersBlocks);
      EXPECT_THAT(layers->Ask("nan"), StartsWith("ok nan="));
      ExpectEnd(*layers);
    }
  }
}

// For a while, the device still executes writes that a dead engine had queued.
TEST_F(ViewTest, LateWritesOfAKilledEngineReachNoEngine) {
  if (!OnEmulatedGpu()) {
    GTEST_SKIP() << "only the emulated device lingers to order";
  }
  const auto daemon = StartPool();
  const auto packed = Start(Packed(), {{"EMUCUDA_LINGER_MS", "1000"},
                                       {"EMUCUDA_STREAM_DELAY_US", "2000"}});
  const auto layers = Start(Layers());
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 15));
  Take(*packed, 8 * kPackedBlocks);
  packed->Ask("free " + std::to_string(8 * kPackedBlocks - 60));
  packed->Ask("begin");
  EXPECT_THAT(packed->Ask("queue"), "ok queued=60");
  Want(*layers, 16 * kLayersBlocks);
  packed->EndBy(SIGKILL);
  ASSERT_TRUE(Gets(*layers, 16));
  Use(*layers, 16 * kLayersBlocks);
  EXPECT_FALSE(Lingers()) << "they were waited for";
  EXPECT_THAT(layers->Ask("verify"), StartsWith("ok"));
}

// Blocks may be freed while a step that writes them is under way. Without the
// fence, the slab would be zeroed and leased before those writes.
TEST_F(ViewTest, FreedBlocksStayUntilTheirStepHasEnded) {
  const auto daemon = StartPool();
  const auto packed = Start(Packed(), {{"EMUCUDA_STREAM_DELAY_US", "20000"}});
  const auto layers = Start(Layers());
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 15));
  Take(*packed, 50);
  Want(*packed, 0);
  packed->Ask("begin");
  EXPECT_THAT(packed->Ask("queue"), "ok queued=50");
  packed->Ask("free 50");
  Want(*layers, 16 * kLayersBlocks);
  EXPECT_TRUE(Eventually([&] {
    packed->Ask("begin");
    return Stat(*packed, "leaving") >= 7;
  }));
  packed->Ask("begin");
  EXPECT_EQ(Stat(*packed, "returned"), 0u);
  while (packed->Ask("end").rfind("ok", 0) == 0) {
  }
  EXPECT_TRUE(Eventually([&] {
    packed->Ask("step");
    layers->Ask("idle 20");
    return Stat(*layers, "leased") == 15;
  }));
  Use(*layers, 15 * kLayersBlocks);
  usleep(100'000);
  EXPECT_THAT(layers->Ask("verify"), StartsWith("ok"));
}

// Engines serve at random under each mode, beside engines that are killed at
// random. A living engine never sees a byte that is not its own, and at the end
// every slab is free.
TEST_F(ViewTest, RandomServingAndKillsCorruptNoEngine) {
  const unsigned seed = process::RandomSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto daemon = StartPool();
  const char* const modes[] = {"view", "guarded", "strict"};
  const Process::Environment slow = {{"EMUCUDA_STREAM_DELAY_US", "100"},
                                     {"EMUCUDA_LINGER_MS", "50"}};
  const auto launch = [&](bool packed, const char* seconds) {
    const std::vector<std::string> more = {
        "--random",    seconds,
        "--seed",      std::to_string(random() % 100'000),
        "--mode",      modes[random() % 3],
        "--watermark", std::to_string(random() % 64),
        "--most",      packed ? "2500" : "400"};
    return Launch(packed ? Packed(more) : Layers(more), slow);
  };
  const auto a = launch(true, "5");
  const auto b = launch(false, "5");
  while (a->alive() && b->alive()) {
    const auto victim = launch(random() % 2 == 0, "60");
    usleep(100'000 + random() % 500'000);
    EXPECT_THAT(victim->Stderr(), Not(HasSubstr("error")));
    victim->EndBy(SIGKILL);
    EXPECT_THAT(victim->ReadAll(), Not(HasSubstr("error")));
  }
  for (const auto* engine : {&a, &b}) {
    EXPECT_THAT((*engine)->ReadAll(), HasSubstr("ok random"));
    EXPECT_EQ((*engine)->Wait(), 0) << (*engine)->Stderr();
  }
  EXPECT_TRUE(EventuallyFree(16));
}

}  // namespace
}  // namespace fineserve::integration

// Engines with views of one pool: real processes, real kills.
//
// "packed" has one plane and pages that divide no slab (33,792 bytes),
// "layers" four planes of 65,536 bytes: a slab of 8 MiB holds 248 blocks of one
// (a straddling block less in most slabs) and 32 of the other.

#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "tests/integration/site.h"
#include "tests/process/random_seed.h"

namespace fineserve::integration {
namespace {

using abi::SlabState;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr uint32_t kLayersBlocks = 32;  // of a slab
constexpr uint32_t kPackedBlocks = 247;

class ViewTest : public Site {
 protected:
  using Engine = std::unique_ptr<Process>;

  Engine StartPool(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"--pool", "128MiB",   "--slab",
                                          "8MiB",   "--planes", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return StartDaemon(arguments);
  }
  // The configuration file that StartFromFile's daemon reads.
  void SetPool(int mib) {
    std::ofstream(folder() + "/fineserve.toml")
        << "[pool]\nsize = \"" << mib << "MiB\"\nmax = \"128MiB\"\n"
        << "slab = \"8MiB\"\nplanes = 4\n";
  }
  Engine StartFromFile() {
    auto daemon = std::make_unique<Process>(
        std::vector<std::string>{Program("fineserved"), "--gpu", Gpu(),
                                 "--config", folder() + "/fineserve.toml"},
        environment());
    EXPECT_TRUE(Eventually([&] {
      return daemon->Stderr().find(" serving ") != std::string::npos;
    })) << daemon->Stderr();
    return daemon;
  }
  Engine Launch(const std::vector<std::string>& arguments,
                const Process::Environment& more = {}) {
    std::vector<std::string> command = {Program("view_engine")};
    command.insert(command.end(), arguments.begin(), arguments.end());
    Process::Environment environment = EngineEnvironment();
    environment.insert(more.begin(), more.end());
    return std::make_unique<Process>(command, environment);
  }
  static std::vector<std::string> With(std::vector<std::string> arguments,
                                       const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static std::vector<std::string> Packed(
      const std::vector<std::string>& more = {}) {
    return With({"--page", "33792", "--seed", "3"}, more);
  }
  static std::vector<std::string> Layers(
      const std::vector<std::string>& more = {}) {
    return With({"--page", "65536", "--planes", "4", "--seed", "4"}, more);
  }
  Engine Start(const std::vector<std::string>& arguments,
               const Process::Environment& more = {}) {
    Engine engine = Launch(arguments, more);
    EXPECT_THAT(engine->ReadLine(), StartsWith("ready")) << engine->Stderr();
    return engine;
  }

  static uint64_t Stat(Process& engine, const std::string& name) {
    const std::string line = " " + engine.Ask("stats");
    const size_t at = line.find(" " + name + "=");
    EXPECT_NE(at, std::string::npos) << line;
    return at == std::string::npos
               ? 0
               : std::stoull(line.substr(at + name.size() + 2));
  }
  // Of the device, as an engine sees it.
  static uint64_t FreeBytes(Process& engine) {
    const std::string line = engine.Ask("checkfree");
    EXPECT_THAT(line, StartsWith("ok free="));
    return strtoull(line.c_str() + strlen("ok free="), nullptr, 10);
  }
  // Lets the engine look at its leases until it has so many slabs.
  static bool Gets(Process& engine, uint64_t slabs) {
    return Eventually([&] {
      engine.Ask("idle 20");
      return Stat(engine, "leased") == slabs && Stat(engine, "leaving") == 0;
    });
  }
  // Takes blocks, looks what is in them, writes and reads back. `scan`: what
  // they may hold, "nanscan" zeros, "scan" also what this engine wrote there.
  static void Use(Process& engine, uint32_t blocks,
                  const std::string& scan = "nanscan") {
    EXPECT_THAT(engine.Ask("alloc " + std::to_string(blocks)),
                StartsWith("ok"));
    for (const std::string& line :
         {scan, std::string("write"), std::string("verify")}) {
      EXPECT_THAT(engine.Ask(line), StartsWith("ok")) << line;
    }
  }
  static void Want(Process& engine, uint32_t blocks) {
    engine.Ask("watermark " + std::to_string(blocks));
    EXPECT_THAT(engine.Ask("step"), StartsWith("ok"));
  }
  static void ExpectEnd(Process& engine) {
    EXPECT_THAT(engine.Ask("exit"), "ok exit");
    EXPECT_EQ(engine.Wait(), 0);
  }
};

TEST_F(ViewTest, EnginesOfTwoFormatsTradeSlabsAndKeepTheirBytes) {
  const auto daemon = StartPool();
  const auto packed = Start(Packed());
  const auto layers = Start(Layers());
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 15)) << "all but the other's floor";
  Use(*packed, 14 * kPackedBlocks);
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

TEST_F(ViewTest, KilledEnginesSlabsGoToTheOtherAsZeros) {
  const auto daemon = StartPool();
  const auto packed = Start(Packed());
  const auto layers = Start(Layers());
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 15));
  Use(*packed, 15 * kPackedBlocks);
  Want(*layers, 16 * kLayersBlocks);
  packed->Signal(SIGKILL);
  packed->Wait();
  ASSERT_TRUE(Gets(*layers, 16));
  Use(*layers, 16 * kLayersBlocks);
  ExpectEnd(*layers);
}

// Every block of every slab holds NaN when it leaves; the next engine, of
// another format, finds zeros. By giving back, and by death.
TEST_F(ViewTest, NoNanOfAnotherFormatIsVisibleAfterALease) {
  const auto daemon = StartPool();
  for (const bool dies : {false, true}) {
    const auto packed = Start(Packed({"--watermark", "4000"}));
    ASSERT_TRUE(Gets(*packed, 16));
    EXPECT_THAT(packed->Ask("alloc " + std::to_string(16 * kPackedBlocks)),
                StartsWith("ok"));
    EXPECT_THAT(packed->Ask("nan"), StartsWith("ok nan="));
    if (dies) {
      packed->Signal(SIGKILL);
      packed->Wait();
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

// The device still writes for a while into what a dead engine had queued.
TEST_F(ViewTest, LateWritesOfAKilledEngineReachNobody) {
  if (!OnEmulatedGpu()) {
    GTEST_SKIP() << "only the emulated device lingers to order";
  }
  const auto daemon = StartPool();
  const auto packed = Start(Packed(), {{"EMUCUDA_LINGER_MS", "1000"},
                                       {"EMUCUDA_STREAM_DELAY_US", "2000"}});
  const auto layers = Start(Layers());
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 15));
  packed->Ask("alloc " + std::to_string(8 * kPackedBlocks));
  packed->Ask("free " + std::to_string(8 * kPackedBlocks - 60));
  packed->Ask("begin");
  EXPECT_THAT(packed->Ask("queue"), "ok queued=60");
  Want(*layers, 16 * kLayersBlocks);
  packed->Signal(SIGKILL);
  packed->Wait();
  ASSERT_TRUE(Gets(*layers, 16));
  Use(*layers, 16 * kLayersBlocks);
  EXPECT_FALSE(Lingers()) << "they were waited for";
  EXPECT_THAT(layers->Ask("verify"), StartsWith("ok"));
}

// Blocks may be freed while a step that writes them is under way. Without the
// fence the slab would be zeroed and leased in front of those writes.
TEST_F(ViewTest, FreedBlocksStayUntilTheirStepHasEnded) {
  const auto daemon = StartPool();
  const auto packed = Start(Packed(), {{"EMUCUDA_STREAM_DELAY_US", "20000"}});
  const auto layers = Start(Layers());
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 15));
  Want(*packed, 0);
  packed->Ask("alloc 50");
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
  daemon->Signal(SIGKILL);
  daemon->Wait();
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
  EXPECT_THAT(engine->ReadLine(),
              AnyOf(HasSubstr("slabs of 32 MiB do"), HasSubstr("MiB do")));
  EXPECT_EQ(engine->Wait(), 5);
}

// What a guarded engine does outside its leases, it does to itself.
TEST_F(ViewTest, GuardedEnginesStrayAccessMeetsItsOwnScratch) {
  const auto daemon = StartPool();
  const auto victim = Start(Packed());
  Want(*victim, 15 * kPackedBlocks);
  ASSERT_TRUE(Gets(*victim, 15));
  Use(*victim, 15 * kPackedBlocks);
  Want(*victim, 0);
  const auto guarded = Start(Packed({"--mode", "guarded"}));
  ASSERT_TRUE(Eventually([&] {
    victim->Ask("step");
    guarded->Ask("idle 20");
    return Stat(*guarded, "leased") == 1;
  }));
  uint32_t own = 0;  // blocks of whichever slab it has
  for (uint32_t v = 1; v <= 16; ++v) {
    const std::string block = std::to_string(v * kPackedBlocks + 100);
    const std::string before = guarded->Ask("peek " + block);
    EXPECT_THAT(before, AnyOf("ok zero", "ok other")) << block;
    if (before == "ok other") continue;  // scratch that was poked
    EXPECT_THAT(guarded->Ask("poke " + block), "ok poked");
    EXPECT_THAT(guarded->Ask("peek " + block), "ok own");
    ++own;
  }
  EXPECT_GT(own, 0u);
  EXPECT_THAT(victim->Ask("verify"), StartsWith("ok"));
}

TEST_F(ViewTest, StrictEnginesStrayAccessEndsIt) {
  const auto daemon = StartPool();
  const auto strict = Start(Packed({"--mode", "strict"}));
  ASSERT_TRUE(Gets(*strict, 1));
  Use(*strict, 100);
  uint32_t faults = 0;
  // Of two slabs one at least is not its own.
  for (const uint32_t v : {2u, 9u}) {
    if (!strict->alive()) break;
    const std::string answer =
        strict->Ask("peek " + std::to_string(v * (kPackedBlocks + 1) + 100));
    faults += answer.find("ILLEGAL_ADDRESS") != std::string::npos;
  }
  EXPECT_EQ(faults, 1u);
  EXPECT_EQ(strict->Wait(), 3);
  EXPECT_TRUE(EventuallyFree(16));
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

// The pool grows and shrinks under engines that serve: what is new is mapped
// with its first lease, and what is withdrawn is let go by all, so that the
// device has it back.
TEST_F(ViewTest, PoolGrowsAndShrinksUnderEnginesThatServe) {
  SetPool(64);
  const auto daemon = StartFromFile();
  const auto packed = Start(Packed());
  const auto layers = Start(Layers({"--mode", "guarded"}));
  Want(*packed, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 7)) << "8 slabs, of which one is a floor";
  Use(*packed, kPackedBlocks);
  const uint64_t free_of_small = FreeBytes(*packed);
  for (int round = 0; round < 2; ++round) {
    SetPool(128);
    daemon->Signal(SIGHUP);
    ASSERT_TRUE(Gets(*packed, 15));
    EXPECT_GT(Stat(*packed, "calls_serving"), 0u);
    EXPECT_EQ(FreeBytes(*packed), free_of_small - (uint64_t{64} << 20));
    Use(*packed, 10 * kPackedBlocks, "scan");
    packed->Ask("free " + std::to_string(10 * kPackedBlocks));
    // The daemon asks back what the scoreboard says is not in use, and for
    // good.
    usleep(10'000);
    packed->Ask("step");
    SetPool(64);
    daemon->Signal(SIGHUP);
    ASSERT_TRUE(Eventually([&] {
      packed->Ask("step");
      layers->Ask("step");
      return SlabsIn(SlabState::kAbsent) == 8 &&
             FreeBytes(*packed) == free_of_small;
    })) << FreeBytes(*packed)
        << " bytes are free, " << free_of_small << " were";
    EXPECT_THAT(packed->Ask("verify"), StartsWith("ok"));
  }
  packed->Ask("step");
  Use(*layers, 10);
  ExpectEnd(*packed);
  ExpectEnd(*layers);
  EXPECT_TRUE(EventuallyFree(8));
}

TEST_F(ViewTest, SizeThatWasRefusedIsTriedAgainAtTheNextReload) {
  SetPool(64);
  const auto daemon = StartFromFile();
  const auto engine =
      Start(Packed({"--floor", std::to_string(4 * kPackedBlocks)}));
  SetPool(16);
  daemon->Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] {
    return daemon->Stderr().find("pool size kept") != std::string::npos;
  })) << daemon->Stderr();
  EXPECT_EQ(SlabsIn(SlabState::kAbsent), 8u) << "those above 64 MiB";
  ExpectEnd(*engine);
  daemon->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return SlabsIn(SlabState::kAbsent) == 14; }));
}

// A process that was started for a view gets one, or no device memory.
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

// Engines that serve at random under each mode beside ones that are killed at
// random: whoever lives never sees a byte that is not its own, and at the end
// every slab is free.
TEST_F(ViewTest, RandomServingAndKillsCorruptNobody) {
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
    victim->Signal(SIGKILL);
    victim->Wait();
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

// A pool of size "auto" follows what its engines need (design note 0038).

#include <gmock/gmock.h>
#include <signal.h>

#include <string>

#include "tests/integration/views/view_site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A device of 512 MiB, of which 32 MiB stay free, and slabs of 8 MiB.
class AutoSizeTest : public ViewTest {
 protected:
  void SetUp() override {
    if (!OnEmulatedGpu()) GTEST_SKIP() << "a device of a chosen size";
    Set("EMUCUDA_MEMORY", "512MiB");
  }
  Engine StartAuto(const std::string& reserve,
                   const std::string& headroom = "32MiB") {
    return StartDaemon({"--pool", "auto", "--reserve", reserve, "--headroom",
                        headroom, "--planes", "4", "--slab", "8MiB"});
  }
  uint32_t PoolSlabs() {
    const abi::TableSnapshot table = Table();
    return static_cast<uint32_t>(table.slabs.size()) -
           SlabsIn(abi::SlabState::kAbsent);
  }
  // Lets `packed` write, check and free blocks. Its slabs stay leased.
  static void UseAndFree(Process& packed, uint32_t slabs) {
    Want(packed, slabs * kPackedBlocks);
    EXPECT_TRUE(Gets(packed, slabs));
    Use(packed, slabs * kPackedBlocks);
    packed.Ask("free " + std::to_string(slabs * kPackedBlocks));
  }
};

TEST_F(AutoSizeTest, GrowsWhenEnginesWantMoreAndLeavesTheHeadroom) {
  const auto daemon = StartAuto("384MiB");
  EXPECT_LE(PoolSlabs(), 16u);
  const auto packed = Start(Packed());
  Want(*packed, 60 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed, 50)) << daemon->Stderr();
  Use(*packed, 50 * kPackedBlocks);
  EXPECT_THAT(packed->Ask("verify"), StartsWith("ok"));
  EXPECT_GE(FreeBytes(*packed), uint64_t{32} << 20);
  EXPECT_THAT(daemon->Stderr(), HasSubstr("the pool grows from"));
}

// The weights of another engine do not fit beside the pool, so the pool shrinks
// while its engine serves.
TEST_F(AutoSizeTest, ShrinksForTheWeightsOfAnEngineThatStarts) {
  const auto daemon = StartAuto("64MiB");
  const uint32_t before = PoolSlabs();
  ASSERT_GE(before, 50u);
  const auto packed = Start(Packed());
  UseAndFree(*packed, 45);
  const auto stock = StartEngine("8MiB", {"--weights", "256MiB"});
  EXPECT_LE(PoolSlabs(), before - 20);
  EXPECT_THAT(daemon->Stderr(), HasSubstr("an engine waits for device memory"));
  Use(*packed, 2 * kPackedBlocks, "scan");
  EXPECT_THAT(packed->Ask("verify"), StartsWith("ok"));
  EXPECT_THAT(Fsctl({"explain", std::to_string(stock->pid())}).out,
              HasSubstr("for device memory of the pool"));
  ExpectEnd(*packed);
}

// Another engine has taken the memory of the evicted engine. Its room must come
// from the pool, slab by slab, and fineserved fills all of it.
TEST_F(AutoSizeTest, ShrinksForTheWeightsOfAnEngineThatComesBack) {
  const auto daemon = StartAuto("160MiB");
  const auto stock =
      StartEngine("8MiB", {"--weights", "96MiB"},
                  {{"FINESERVE_EVICT", "auto"}, {"FINESERVE_ENGINE", "stock"}});
  const Finished out = Fsctl({"evict", "stock"});
  ASSERT_EQ(out.code, 0) << out.err << daemon->Stderr();
  EXPECT_THAT(out.out, HasSubstr("100 MiB left the GPU"));
  const auto packed = Start(Packed());
  const auto other = StartEngine("8MiB", {"--weights", "160MiB"});
  const Finished back = Fsctl({"activate", "stock"});
  ASSERT_EQ(back.code, 0) << back.err << daemon->Stderr();
  EXPECT_THAT(stock->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(other->Ask("verify"), HasSubstr("ok verified"));
  EXPECT_THAT(stock->Stderr(), Not(HasSubstr("does so itself")));
  ExpectEnd(*packed);
}

// An engine keeps its floor, so another engine that cannot get memory is
// refused at once.
TEST_F(AutoSizeTest, FloorsAreKept) {
  const auto daemon = StartAuto("64MiB");
  const uint32_t floor = 40;
  const auto packed =
      Start(Packed({"--floor", std::to_string(floor * kPackedBlocks)}));
  UseAndFree(*packed, floor);
  const auto stock = LaunchEngine("8MiB", {"--weights", "256MiB"});
  EXPECT_NE(stock->Wait(), 0);
  EXPECT_THAT(stock->Stderr(), HasSubstr("out of device memory"));
  EXPECT_GE(PoolSlabs(), floor);
  EXPECT_THAT(packed->Ask("verify"), StartsWith("ok"));
}

TEST_F(AutoSizeTest, AllocationThatCanNeverFitTakesNothing) {
  const auto daemon = StartAuto("64MiB");
  const uint32_t before = PoolSlabs();
  const auto stock = LaunchEngine("8MiB", {"--weights", "8GiB"});
  EXPECT_NE(stock->Wait(), 0);
  EXPECT_THAT(stock->Stderr(), HasSubstr("out of device memory"));
  EXPECT_EQ(PoolSlabs(), before) << daemon->Stderr();
}

TEST_F(AutoSizeTest, GrowsForAFloorThatDoesNotFit) {
  const auto daemon = StartAuto("448MiB");
  ASSERT_LE(PoolSlabs(), 8u);
  const auto packed =
      Start(Packed({"--floor", std::to_string(20 * kPackedBlocks)}));
  EXPECT_GE(PoolSlabs(), 20u);
  UseAndFree(*packed, 20);
}

TEST_F(AutoSizeTest, GrowsForWholeSlabsThatAnEngineBeginsWith) {
  const auto daemon = StartAuto("448MiB");
  ASSERT_LE(PoolSlabs(), 8u);
  const auto stock = StartEngine("128MiB", {});
  EXPECT_GE(PoolSlabs(), 16u);
  EXPECT_EQ(Table().counters.leases_denied, 0u);
}

// A program without FineServe does not ask the pool for memory. It uses the
// headroom, which is restored for the next program.
TEST_F(AutoSizeTest, RestoresItsHeadroomBesideStrangers) {
  const auto daemon = StartAuto("96MiB", "96MiB");
  const uint32_t before = PoolSlabs();
  Process::Environment stranger = EngineEnvironment();
  stranger.erase("LD_PRELOAD");
  const Process program({Program("stock_engine"), "--kv", "24MiB", "--layers",
                         "1", "--weights", "32MiB", "--hold"},
                        stranger);
  EXPECT_TRUE(Eventually([&] { return PoolSlabs() + 5 <= before; }))
      << program.Stderr() << daemon->Stderr();
}

// The engines still hold the former daemon's pool. Less than the reserve is
// free, because the weights that the reserve is for are already there. The new
// pool starts nevertheless, and takes what the engines leave.
TEST_F(AutoSizeTest, DaemonThatNoParentKeptAPoolForStartsBesideItsEngines) {
  auto daemon = StartAuto("256MiB");
  auto packed = Start(Packed());
  UseAndFree(*packed, 24);
  daemon->EndBy(SIGKILL);
  daemon = StartAuto("256MiB");
  EXPECT_THAT(daemon->Stderr(), HasSubstr("the pool of a former daemon"));
  EXPECT_EQ(PoolSlabs(), 1u);
  EXPECT_THAT(packed->Ask("verify"), StartsWith("ok"));
  packed.reset();
  const auto next = Start(Packed());
  UseAndFree(*next, 40);
  ExpectEnd(*next);
}

// Together, the former pool and the new pool are not larger than the fixed
// size.
TEST_F(AutoSizeTest, PoolOfAFixedSizeBeginsWithWhatAFormerOnesEnginesLeave) {
  const auto start = [&] {
    return StartDaemon({"--pool", "400MiB", "--planes", "4", "--slab", "8MiB"});
  };
  auto daemon = start();
  EXPECT_EQ(PoolSlabs(), 50u);
  auto stock = StartEngine("120MiB");  // 30 slabs
  daemon->EndBy(SIGKILL);
  daemon = start();
  EXPECT_EQ(PoolSlabs(), 20u);
  EXPECT_THAT(stock->Ask("verify"), HasSubstr("ok verified"));
  stock.reset();
  daemon->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return PoolSlabs() == 50; }));
}

// The next daemon makes room as well.
TEST_F(AutoSizeTest, MakesRoomAfterATakeover) {
  const auto parent =
      StartDaemon({"--supervise", "--pool", "auto", "--reserve", "64MiB",
                   "--headroom", "32MiB", "--planes", "4", "--slab", "8MiB"});
  const auto packed = Start(Packed());
  UseAndFree(*packed, 45);
  const uint32_t first = Table().daemon_pid;
  ASSERT_TRUE(process::SignalOne(static_cast<pid_t>(first), SIGKILL));
  ASSERT_TRUE(Eventually([&] { return Table().daemon_pid != first; }));
  const auto stock = StartEngine("8MiB", {"--weights", "256MiB"});
  EXPECT_THAT(packed->Ask("verify"), StartsWith("ok"));
  ExpectEnd(*packed);
}

}  // namespace
}  // namespace fineserve::integration

// An operator limits what an engine holds of the pool (fsctl limit).

#include <gmock/gmock.h>
#include <signal.h>

#include <string>
#include <vector>

#include "daemon/contract/abi/observer_link.h"
#include "tests/integration/views/view_site.h"

namespace fineserve::integration {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// 16 slabs of 8 MiB, which the daemon's parent keeps. "packed" uses all slabs
// of the pool except the floor of "layers".
class ViewLimitTest : public ViewTest {
 protected:
  ViewLimitTest() {
    supervisor_ = StartDaemon(
        {"--supervise", "--pool", "128MiB", "--slab", "8MiB", "--planes", "4"});
    packed_ = Start(Packed(), {{"FINESERVE_ENGINE", "packed"}});
    layers_ = Start(Layers(), {{"FINESERVE_ENGINE", "layers"}});
    Want(*packed_, 16 * kPackedBlocks);
    EXPECT_TRUE(Gets(*packed_, 15));
    Use(*packed_, 15 * kPackedBlocks);
  }

  std::string Limit(const std::vector<std::string>& arguments) {
    const Finished done = Fsctl(With({"limit"}, arguments));
    EXPECT_EQ(done.code, 0) << done.err;
    return done.out;
  }
  // Expects that the command fails with `code`, and returns its error text.
  std::string LimitFails(const std::vector<std::string>& arguments, int code) {
    const Finished done = Fsctl(With({"limit"}, arguments));
    EXPECT_EQ(done.code, code) << done.out << done.err;
    return done.err;
  }
  // Returns the slabs that the daemon counts as the engine's, asked back or
  // not.
  uint64_t Held(const std::string& engine) {
    for (const abi::EngineSnapshot& e : Table().engines) {
      if (e.name == engine) return e.slabs_held;
    }
    return 0;
  }
  bool Holds(Process& engine, const std::string& name, uint64_t at_most) {
    return Eventually([&] {
      engine.Ask("step");
      return Held(name) <= at_most;
    });
  }
  // Kills the daemon and waits for the one that takes over.
  void KillDaemon() {
    const abi::TableSnapshot before = Table();
    ASSERT_TRUE(KillDaemonOf(before));
    ASSERT_TRUE(Eventually([&] {
      const auto link =
          abi::ConnectObserver(SocketPath(), absl::Milliseconds(200));
      if (!link.ok()) return false;
      const auto now = abi::ReadTable(link->table.get());
      return now.ok() && now->daemon_pid != before.daemon_pid;
    })) << supervisor_->Stderr();
    EXPECT_EQ(Table().epoch, before.epoch);
  }

  Engine supervisor_, packed_, layers_;
};

TEST_F(ViewLimitTest, OneEnginesLimitIsTheOthersRoomThroughADaemonsDeath) {
  ASSERT_EQ(Held("packed"), 15u);
  EXPECT_EQ(Limit({"packed", "30%"}),
            "packed: at most 4 slabs (32 MiB): 30% of the pool's 16 = 4.8 "
            "rounded down; it holds 15, 11 are asked back\n");
  // Every slab has used blocks, so none is returned, and no other engine writes
  // there.
  for (int i = 0; i < 10; ++i) packed_->Ask("idle 20");
  EXPECT_EQ(Held("packed"), 15u);
  EXPECT_EQ(Stat(*packed_, "leaving"), 11u);
  EXPECT_THAT(packed_->Ask("verify"), StartsWith("ok"));
  packed_->Ask("free " + std::to_string(15 * kPackedBlocks - 100));
  ASSERT_TRUE(Holds(*packed_, "packed", 4));
  EXPECT_THAT(packed_->Ask("verify"), StartsWith("ok"));
  Want(*layers_, 16 * kLayersBlocks);
  ASSERT_TRUE(Gets(*layers_, 12)) << "the rest is its";
  Use(*layers_, 12 * kLayersBlocks);

  ASSERT_NO_FATAL_FAILURE(KillDaemon());
  EXPECT_EQ(JsonAt(Limit({"packed", "--json"}), "/engines/0/limit_slabs"), "4");
  ExpectEnd(*layers_);
  Want(*packed_, 16 * kPackedBlocks);
  ASSERT_TRUE(Gets(*packed_, 4)) << "while it steps";
  ASSERT_TRUE(EventuallyFree(12));
  for (int i = 0; i < 20; ++i) packed_->Ask("idle 20");
  EXPECT_EQ(Held("packed"), 4u) << "though all others are free";

  EXPECT_EQ(Limit({"packed", "none"}), "packed: no limit now\n");
  ASSERT_TRUE(Gets(*packed_, 16)) << supervisor_->Stderr();
  Use(*packed_, 12 * kPackedBlocks, "scan");
  EXPECT_THAT(packed_->Ask("verify"), StartsWith("ok"));
  ExpectEnd(*packed_);
  EXPECT_TRUE(EventuallyFree(16));
}

TEST_F(ViewLimitTest, LimitIsSeenWhereOneLooksAndEndsWithItsEngine) {
  packed_->Ask("free " + std::to_string(15 * kPackedBlocks));
  Limit({"packed", "40MiB"});
  ASSERT_TRUE(Holds(*packed_, "packed", 5));
  EXPECT_THAT(Limit({}), HasSubstr("packed      5  40 MiB  31.25 %"));
  EXPECT_THAT(Limit({}), HasSubstr("layers   none"));
  ExpectEnd(*packed_);
  packed_ = Start(Packed(), {{"FINESERVE_ENGINE", "packed"}});
  EXPECT_EQ(JsonAt(Limit({"packed", "--json"}), "/engines/0/limit_slabs"),
            "null");
  Want(*packed_, 16 * kPackedBlocks);
  EXPECT_TRUE(Gets(*packed_, 15));
}

TEST_F(ViewLimitTest, ImpossibleLimitIsRefusedWithThePossibleOnes) {
  EXPECT_THAT(LimitFails({"pakced", "30%"}, 2),
              HasSubstr("no engine 'pakced' lives in the pool; did you mean "
                        "packed?; see fsctl engines"));
  EXPECT_THAT(
      LimitFails({"packed", "off"}, 2),
      HasSubstr("give a part of the pool (30%), a size (8GiB) or none"));
  EXPECT_THAT(LimitFails({"packed", "1MiB"}, 2),
              HasSubstr("the least limit is 8MiB (6.25%)"));
  const auto long_requests =
      Start(Layers({"--floor", std::to_string(3 * kLayersBlocks)}),
            {{"FINESERVE_ENGINE", "long"}});
  EXPECT_THAT(LimitFails({"long", "10%"}, 2),
              HasSubstr("floor of 3 slabs, its own at all times"));
  EXPECT_THAT(LimitFails({"long", "10%"}, 2),
              HasSubstr("the least limit is 24MiB (18.75%), not 1 slab"));
  EXPECT_THAT(Limit({"long", "18.75%"}), HasSubstr("at most 3 slabs"));
  EXPECT_THAT(Fsctl({"limti"}).err, HasSubstr("did you mean limit?"));
  supervisor_->EndBy(SIGTERM);
  EXPECT_THAT(LimitFails({"packed", "30%"}, 3), EndsWith("\n"));
}

// The slabs of an allocation cannot be asked back, so the next allocation gets
// none.
TEST_F(ViewLimitTest, EngineOfWholeSlabsKeepsWhatItHasAndGetsNothingNew) {
  packed_->Ask("free " + std::to_string(15 * kPackedBlocks));
  ExpectEnd(*packed_);
  const auto stock = StartEngine("8MiB", {}, {{"FINESERVE_ENGINE", "stock"}});
  ASSERT_EQ(Held("stock"), 2u);
  EXPECT_THAT(Limit({"stock", "8MiB"}),
              HasSubstr("it holds 2, 2 are leased whole and come back when it "
                        "frees them"));
  EXPECT_EQ(Held("stock"), 2u);
  const auto second = LaunchEngine("8MiB", {}, {{"FINESERVE_ENGINE", "stock"}});
  EXPECT_NE(second->Wait(), 0);
  EXPECT_THAT(second->Stderr(),
              HasSubstr("stock 16 MiB of at most 8 MiB by fsctl limit"));
  EXPECT_THAT(second->Stderr(),
              HasSubstr("failed: the engine's limit of 1 slabs (fsctl limit)"));
  EXPECT_EQ(Held("stock"), 2u);
  EXPECT_THAT(supervisor_->Stderr(),
              HasSubstr("asked for 1 slabs, its limit of 1 leaves 0"));
}

}  // namespace
}  // namespace fineserve::integration

// Pools of size "auto" grow and shrink while an engine on two GPUs serves. It
// checks each byte of its slabs on both.

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/integration/ranks/group_site.h"
#include "tools/lab/process/child_process.h"

namespace fineserve::integration {
namespace {

// Each device has 256 MiB, of which 16 MiB stay free and the pool takes 64 MiB
// at first, in slabs of 2 MiB.
class GroupGrowthTest : public GroupSite {
 protected:
  void SetUp() override {
    Set("EMUCUDA_MEMORY", "256MiB");
    GroupSite::SetUp();
  }
  std::vector<std::string> PoolOptions(int /*gpu*/) const override {
    return {"--pool",     "auto",  "--reserve",  "192MiB",
            "--headroom", "16MiB", "--supervise"};
  }
  int64_t PoolSlabs(int gpu) {
    const abi::TableSnapshot table = TableOf(gpu);
    return std::count_if(table.slabs.begin(), table.slabs.end(),
                         [](const auto& slab) {
                           return slab.word.state != abi::SlabState::kAbsent;
                         });
  }
  static bool EventuallyHolds(GroupEngine* engine, int64_t more_than) {
    return Eventually([&] { return engine->Stat("held") > more_than; });
  }
};

TEST_F(GroupGrowthTest, WhatBothPoolsGainedIsUsed) {
  const int64_t first = std::min(PoolSlabs(0), PoolSlabs(1));
  const auto engine = StartGroup("0,1");
  EXPECT_TRUE(EventuallyHolds(engine.get(), first + 8))
      << engine->parent().Ask("stats") << engine->parent().Stderr();
  for (int gpu = 0; gpu < kGpus; ++gpu) EXPECT_GT(PoolSlabs(gpu), first + 8);
  EXPECT_TRUE(Moves(engine.get()));
  EXPECT_EQ(engine->parent().Ask("exit"), "ok exit");
  EXPECT_EQ(engine->parent().Wait(), 0) << engine->parent().Stderr();
}

TEST_F(GroupGrowthTest, WhatOnePoolGaveUpAndTookBackIsUsed) {
  const auto engine = StartGroup("0,1");
  StartPlain();
  ASSERT_TRUE(Eventually([&] { return PoolSlabs(0) > 90; }));
  const auto stock =
      StartEngine("8MiB", {"--weights", "128MiB"},
                  {{"FINESERVE_EVICT", "auto"}, {"FINESERVE_ENGINE", "stock"}});
  const int64_t least = PoolSlabs(0);
  EXPECT_LT(least, 60);
  EXPECT_TRUE(Moves(engine.get()));
  const Finished out = Fsctl({"evict", "stock"});
  ASSERT_EQ(out.code, 0) << out.err << daemons_[0]->Stderr();
  EXPECT_TRUE(EventuallyHolds(engine.get(), least + 8))
      << PoolSlabs(0) << " slabs; " << engine->parent().Ask("stats")
      << daemons_[0]->Stderr();
  EXPECT_TRUE(plain_->alive()) << plain_->ReadAll() << plain_->Stderr();
}

TEST_F(GroupGrowthTest, TheNextDaemonLeasesWhatThePoolGained) {
  const int64_t first = std::min(PoolSlabs(0), PoolSlabs(1));
  const auto engine = StartGroup("1,0");
  ASSERT_TRUE(EventuallyHolds(engine.get(), first + 8));
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    const auto before = static_cast<pid_t>(TableOf(gpu).daemon_pid);
    ASSERT_TRUE(process::SignalOne(before, SIGKILL));
    ASSERT_TRUE(Eventually(
        [&] { return static_cast<pid_t>(TableOf(gpu).daemon_pid) != before; }));
  }
  EXPECT_TRUE(EventuallyHolds(engine.get(), first + 8))
      << engine->parent().Ask("stats") << engine->parent().Stderr()
      << daemons_[0]->Stderr() << daemons_[1]->Stderr();
}

}  // namespace
}  // namespace fineserve::integration

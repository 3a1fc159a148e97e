// Three GPUs, and three engines of which each shares one GPU with each of the
// two others, so that all wait for each other in a ring; a plain one on the
// first GPU. They go on trading slabs, some seconds in each run of the tests
// (FINESERVE_TRADE_SECONDS), and one after the other dies.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tests/integration/groups/group_site.h"
#include "tests/process/from_environment.h"

namespace fineserve::integration {
namespace {

class GroupRingTest : public GroupSite {
 protected:
  GroupRingTest() : GroupSite({18, 24, 20}) {}

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GroupSite::SetUp());
    if (IsSkipped()) return;
    for (size_t i = 0; i < 3; ++i) engines_[i] = LaunchGroup(kPairs[i]);
    for (const auto& engine : engines_) {
      EXPECT_TRUE(engine->AwaitReady()) << engine->parent().Stderr();
    }
    StartPlain();
  }

  // Each engine gets slabs and each GPU gets some back.
  void TradeFor(std::chrono::milliseconds time) {
    uint64_t returned[3];
    int64_t gained[3];
    for (int i = 0; i < 3; ++i) {
      returned[i] = TableOf(i).counters.slabs_returned;
      gained[i] = engines_[i]->Stat("gained");
    }
    std::this_thread::sleep_for(time);
    for (int i = 0; i < 3; ++i) {
      const uint64_t now = TableOf(i).counters.slabs_returned;
      printf("GPU %d: %lu slabs returned\n", i, now - returned[i]);
      EXPECT_GT(now, returned[i]) << "GPU " << i;
      EXPECT_GT(engines_[i]->Stat("gained"), gained[i]) << kPairs[i];
    }
    EXPECT_TRUE(plain_->alive()) << plain_->ReadAll() << plain_->Stderr();
  }

  static constexpr const char* kPairs[] = {"0,1", "1,2", "2,0"};
  std::unique_ptr<GroupEngine> engines_[3];
};

TEST_F(GroupRingTest,
       EnginesThatShareOneGpuEachGoOnTradingAndOutliveEachOther) {
  const int seconds = process::FromEnvironment("FINESERVE_TRADE_SECONDS", 6);
  for (int part = 0; part < 3; ++part) {
    TradeFor(std::chrono::milliseconds(1000) * seconds / 3);
    ASSERT_FALSE(HasFailure()) << "part " << part;
    // A rank on its second GPU; the two others notice nothing.
    auto& dying = engines_[part];
    dying->SignalRank(1, SIGKILL);
    EXPECT_TRUE(dying->EventuallyEnds()) << dying->parent().Stderr();
    EXPECT_TRUE(EventuallyHoldsNothing(dying->name()));
    for (int i = 0; i < 3; ++i) {
      if (i == part) continue;
      EXPECT_TRUE(Moves(engines_[i].get())) << kPairs[i];
    }
    dying = StartGroup(kPairs[part]);
    EXPECT_TRUE(Moves(dying.get())) << kPairs[part];
    ASSERT_FALSE(HasFailure()) << "part " << part;
  }
  for (const auto& engine : engines_) {
    printf("%s\n", engine->parent().Ask("stats").c_str());
    EXPECT_EQ(engine->parent().Ask("exit"), "ok exit");
    EXPECT_EQ(engine->parent().Wait(), 0) << engine->parent().Stderr();
  }
  plain_->Signal(SIGKILL);
  plain_->Wait();
  EXPECT_TRUE(EventuallyAllFree());
}

}  // namespace
}  // namespace fineserve::integration

// Three engines on three GPUs, each of which shares one GPU with each of the
// two others, so that all wait for each other in a ring, and a plain engine on
// the first GPU. They keep trading slabs, and die one after another.

#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "tests/integration/ranks/group_site.h"

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

  static constexpr const char* kPairs[] = {"0,1", "1,2", "2,0"};
  std::unique_ptr<GroupEngine> engines_[3];
};

TEST_F(GroupRingTest,
       EnginesThatShareOneGpuEachGoOnTradingAndOutliveEachOther) {
  for (int part = 0; part < 3; ++part) {
    ASSERT_TRUE(
        Trade({engines_[0].get(), engines_[1].get(), engines_[2].get()}))
        << "part " << part;
    ASSERT_TRUE(plain_->alive()) << plain_->ReadAll() << plain_->Stderr();
    // Kills a rank on the engine's second GPU. The two other engines notice
    // nothing.
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
  plain_->EndBy(SIGKILL);
  EXPECT_TRUE(EventuallyAllFree());
}

}  // namespace
}  // namespace fineserve::integration

// Tests of a rank: another process runs the block pool of its view.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using testing::IsEmpty;

class EngineViewRankTest : public EngineViewTest {
 protected:
  static fs_kv_format RankFormat() {
    fs_kv_format format = Format();
    format.flags = FS_KV_RANK;
    return format;
  }
  void ServeAsRank() {
    StartDaemon({.slab_count = kSlabs});
    ASSERT_EQ(Register(RankFormat()), FS_OK) << KvErrorText();
    AddTensors();
    scoreboard_.RaisePluginStage(FS_KV_POOL_CONSTRUCTED);
    ASSERT_EQ(view_.Activate(driver_), FS_OK) << KvErrorText();
  }
};

TEST_F(EngineViewRankTest, ItMapsThePoolAndSaysNothingOfItsSlabs) {
  ServeAsRank();
  EXPECT_EQ(daemon_->views().request.flags, abi::kViewOfGroup);
  EXPECT_TRUE(HasSlab(2));
  daemon_->Lease(1, 5);
  daemon_->AskBack(1, 5);
  view_.Keep(driver_);
  EXPECT_THAT(daemon_->views().wanted, IsEmpty());
  EXPECT_THAT(daemon_->views().returned, IsEmpty());
}

// Its own books never see that the other process has returned the slab.
TEST_F(EngineViewRankTest, ItLetsGoOfASlabThatLeavesThePool) {
  ServeAsRank();
  daemon_->Lease(1, 5);
  view_.Keep(driver_);
  daemon_->AskBack(1, 5);
  view_.Keep(driver_);
  EXPECT_TRUE(HasSlab(2)) << "steps may still use it";
  daemon_->Free(1);
  view_.Keep(driver_);
  EXPECT_TRUE(HasSlab(2));
  daemon_->Withdraw(1);
  view_.Keep(driver_);
  EXPECT_TRUE(IsScratch(tensors_[0].base + 2 * kShare));
  EXPECT_TRUE(IsScratch(tensors_[1].base + 2 * kShare));
  EXPECT_TRUE(HasSlab(1));
}

TEST_F(EngineViewRankTest, ItHandsOutNoBlocks) {
  ServeAsRank();
  fs_kv_change change;
  uint32_t block;
  EXPECT_EQ(view_.Poll(driver_, &change, 1), -FS_STATE);
  EXPECT_EQ(view_.Want(1), FS_STATE);
  EXPECT_EQ(view_.Allocate(1, &block), FS_STATE);
  EXPECT_EQ(view_.BeginStep(driver_), 0u);
  EXPECT_TRUE(HasSlab(2));
}

TEST_F(EngineViewRankTest, ItIsSuspendedWithItsEngineAndResumed) {
  ServeAsRank();
  ASSERT_EQ(view_.Suspend(driver_), FS_OK) << KvErrorText();
  EXPECT_FALSE(view_.is_active());
  ASSERT_EQ(view_.Resume(driver_), FS_OK) << KvErrorText();
  EXPECT_TRUE(HasSlab(2));
}

TEST_F(EngineViewRankTest, ItTellsWhatAnotherProcessJoinsItBy) {
  fs_kv_rank rank = {};
  EXPECT_EQ(view_.ReadRank(&rank), FS_STATE);
  ServeAsRank();
  ASSERT_EQ(view_.ReadRank(&rank), FS_OK);
  EXPECT_EQ(rank.pid, static_cast<uint32_t>(getpid()));
  EXPECT_NE(std::string(rank.engine_name), "");
}

TEST_F(EngineViewRankTest, OnlyAViewOfTheWholePoolCanBeOne) {
  StartDaemon({.slab_count = kSlabs});
  fs_kv_format format = RankFormat();
  format.mode = FS_KV_GUARDED;
  EXPECT_EQ(Register(format), FS_INVALID);
  format = RankFormat();
  format.flags = 2;
  EXPECT_EQ(Register(format), FS_INVALID);
}

}  // namespace
}  // namespace fineserve::shim

#include "shim/eviction/view_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "shim/view/engine_view_fixture.h"

namespace fineserve::shim {
namespace {

using testing::ElementsAre;
using testing::Pair;

class ViewKeeperTest : public EngineViewTest {
 protected:
  // The keeper's thread may outlive the test, asleep.
  ViewKeeper& keeper_ = *new ViewKeeper(&view_);
  void TearDown() override {
    keeper_.Stop();
    static auto* const kept = new std::vector<ViewKeeper*>;
    kept->push_back(&keeper_);
    EngineViewTest::TearDown();
  }
};

TEST_F(ViewKeeperTest, IdleEngineAnswersAskBacks) {
  Serve();
  keeper_.Start(driver_);
  for (uint32_t s = 0; s < 3; ++s) daemon_->Lease(s, s + 5);
  // The keeper's thread, too, may be the one that reads a lease and then links
  // it.
  ASSERT_TRUE(FakeDaemon::Becomes([this] {
    Step();
    return Stats().free_blocks == 3 * kSlabBlocks;
  }));
  const auto blocks = Allocate(kSlabBlocks);
  for (uint32_t s = 0; s < 3; ++s) daemon_->AskBack(s, s + 5);
  EXPECT_EQ(Returned(2).size(), 2u);
  EXPECT_EQ(Free(blocks), FS_OK);
  EXPECT_EQ(Returned(3).size(), 3u);
}

TEST_F(ViewKeeperTest, NextViewIsKeptToo) {
  Serve();
  keeper_.Start(driver_);
  for (const Redirection& t : tensors_) {
    ASSERT_EQ(view_.FreeTensor(driver_, t), driver::CUDA_SUCCESS);
  }
  tensors_.clear();
  ASSERT_EQ(Register(), FS_OK) << KvErrorText();
  AddTensors();
  ASSERT_EQ(view_.Activate(driver_), FS_OK) << KvErrorText();
  keeper_.Start(driver_);
  daemon_->Lease(1, 5);
  Step();
  daemon_->AskBack(1, 5);
  EXPECT_THAT(Returned(1), ElementsAre(Pair(1, 5)));
}

TEST_F(ViewKeeperTest, StoppedKeeperDoesNothing) {
  Serve();
  daemon_->Lease(1, 5);
  Step();
  keeper_.Stop();
  keeper_.Start(driver_);
  daemon_->AskBack(1, 5);
  EXPECT_EQ(Stats().returned_slabs, 0u);
}

}  // namespace
}  // namespace fineserve::shim

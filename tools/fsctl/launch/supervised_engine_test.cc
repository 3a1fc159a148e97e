#include "tools/fsctl/launch/supervised_engine.h"

#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

using State = SupervisedEngine::State;

constexpr uint64_t kSecond = 1'000'000'000;

TEST(SupervisedEngineTest, IsStartedAtOnceAndServesWhenItsHealthIsGood) {
  SupervisedEngine engine;
  EXPECT_TRUE(engine.IsDue(5));
  engine.Started(4711, 5);
  EXPECT_FALSE(engine.IsDue(6));
  EXPECT_EQ(engine.pid(), 4711);
  EXPECT_FALSE(engine.Checked(false, 7)) << "no news";
  EXPECT_TRUE(engine.Checked(true, 8));
  EXPECT_EQ(engine.state(), State::kServing);
  EXPECT_FALSE(engine.Checked(true, 9));
  EXPECT_TRUE(engine.Checked(false, 10)) << "it hangs";
}

TEST(SupervisedEngineTest, PauseDoublesUpToTheLongest) {
  SupervisedEngine engine;
  uint64_t now = 0;
  for (const uint64_t seconds : {1, 2, 4, 8, 16, 30, 30}) {
    ASSERT_TRUE(engine.IsDue(now));
    engine.Started(1, now);
    EXPECT_EQ(engine.Ended(now), seconds * kSecond);
    EXPECT_FALSE(engine.IsDue(now + seconds * kSecond - 1));
    now += seconds * kSecond;
  }
}

TEST(SupervisedEngineTest, OneThatServedForAWhileComesBackSoon) {
  SupervisedEngine engine;
  engine.Started(1, 0);
  engine.Ended(0);
  engine.Started(1, kSecond);
  engine.Checked(true, kSecond);
  EXPECT_EQ(engine.Ended(kSecond + SupervisedEngine::kStableNs - 1),
            2 * kSecond);
  engine.Started(1, 100 * kSecond);
  engine.Checked(true, 100 * kSecond);
  EXPECT_EQ(engine.Ended(100 * kSecond + SupervisedEngine::kStableNs), kSecond);
}

TEST(SupervisedEngineTest, NothingIsCheckedWhileItIsDown) {
  SupervisedEngine engine;
  EXPECT_FALSE(engine.Checked(true, 1)) << "another program answers there";
  EXPECT_EQ(engine.state(), State::kDown);
}

}  // namespace
}  // namespace fineserve::fsctl

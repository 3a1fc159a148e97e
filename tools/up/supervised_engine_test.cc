#include "tools/up/supervised_engine.h"

#include <gtest/gtest.h>

#include "tools/fsctl/terminal/fabricated_moment.h"

namespace fineserve::fsctl {
namespace {

using State = SupervisedEngine::State;

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
}

TEST(SupervisedEngineTest, OneIsSilentAfterSecondsWithoutAnAnswer) {
  constexpr uint64_t kSilent = SupervisedEngine::kSilentNs;
  SupervisedEngine engine;
  engine.Started(1, 0);
  engine.Checked(true, 1);
  EXPECT_FALSE(engine.Checked(false, 10));
  EXPECT_FALSE(engine.Checked(false, 9 + kSilent));
  EXPECT_EQ(engine.state(), State::kServing) << "it is busy";
  EXPECT_TRUE(engine.Checked(false, 10 + kSilent));
  EXPECT_EQ(engine.state(), State::kSilent);
  EXPECT_TRUE(engine.Hangs(10 + kSilent, kSilent)) << "from its first sign";
  EXPECT_TRUE(engine.Checked(true, 11 + kSilent));
  EXPECT_FALSE(engine.Checked(false, 12 + kSilent));
}

TEST(SupervisedEngineTest, OneThatServedAndIsSilentHangs) {
  constexpr uint64_t kPatience = 120 * kTestSecond;
  SupervisedEngine engine;
  engine.Started(1, 0);
  EXPECT_FALSE(engine.Hangs(10 * kPatience, kPatience)) << "it may be loading";
  engine.Checked(true, kTestSecond);
  EXPECT_FALSE(engine.Hangs(10 * kPatience, kPatience)) << "it serves";
  for (uint64_t at = kPatience; at < 2 * kPatience; at += kTestSecond) {
    engine.Checked(false, at);
  }
  EXPECT_FALSE(engine.Hangs(2 * kPatience - 1, kPatience));
  EXPECT_TRUE(engine.Hangs(2 * kPatience, kPatience));
  EXPECT_FALSE(engine.Hangs(2 * kPatience, 0)) << "not wanted";
  engine.Checked(true, 2 * kPatience);
  EXPECT_FALSE(engine.Hangs(3 * kPatience, kPatience));
  engine.Ended(3 * kPatience);
  engine.Started(2, 3 * kPatience);
  EXPECT_FALSE(engine.Hangs(9 * kPatience, kPatience)) << "another process";
}

// fsctl up was itself stopped, or had no processor.
TEST(SupervisedEngineTest, OneThatWasNotAskedForLongIsNotSilentForThatLong) {
  constexpr uint64_t kPatience = 120 * kTestSecond;
  SupervisedEngine engine;
  engine.Started(1, 0);
  engine.Checked(true, kTestSecond);
  engine.Checked(false, 2 * kTestSecond);
  engine.Checked(false, 2 * kPatience);
  EXPECT_EQ(engine.state(), State::kServing);
  EXPECT_FALSE(engine.Hangs(2 * kPatience, kPatience));
}

TEST(SupervisedEngineTest, OneThatHangsAgainIsUnwellSinceItsFirstSilence) {
  constexpr uint64_t kSilent = SupervisedEngine::kSilentNs;
  SupervisedEngine engine;
  engine.Started(1, kTestSecond);
  engine.Checked(true, 2 * kTestSecond);
  engine.Checked(false, 5 * kTestSecond);
  engine.Checked(false, 5 * kTestSecond + kSilent);
  EXPECT_EQ(engine.silent_ns(), 5 * kTestSecond);
  engine.KilledAsHung(20 * kTestSecond);
  EXPECT_EQ(engine.Ended(21 * kTestSecond), SupervisedEngine::kFirstPauseNs);
  EXPECT_EQ(engine.unwell_ns(), 5 * kTestSecond);
  engine.Started(2, 22 * kTestSecond);
  engine.Checked(true, 23 * kTestSecond);
  engine.Checked(false, 24 * kTestSecond);
  engine.Ended(25 * kTestSecond);
  EXPECT_EQ(engine.unwell_ns(), 5 * kTestSecond) << "it has not been stable";
  engine.Started(3, 26 * kTestSecond);
  engine.AskedToEnd(27 * kTestSecond);
  engine.Ended(28 * kTestSecond);
  EXPECT_EQ(engine.unwell_ns(), 0u) << "an operator wanted it";
}

TEST(SupervisedEngineTest, PauseDoublesUpToTheLongest) {
  SupervisedEngine engine;
  uint64_t now = 0;
  for (const uint64_t seconds : {1, 2, 4, 8, 16, 30, 30}) {
    ASSERT_TRUE(engine.IsDue(now));
    engine.Started(1, now);
    EXPECT_EQ(engine.Ended(now), seconds * kTestSecond);
    EXPECT_FALSE(engine.IsDue(now + seconds * kTestSecond - 1));
    now += seconds * kTestSecond;
  }
}

TEST(SupervisedEngineTest, OneThatServedForAWhileComesBackSoon) {
  SupervisedEngine engine;
  engine.Started(1, 0);
  engine.Ended(0);
  engine.Started(1, kTestSecond);
  engine.Checked(true, kTestSecond);
  EXPECT_EQ(engine.Ended(kTestSecond + SupervisedEngine::kStableNs - 1),
            2 * kTestSecond);
  engine.Started(1, 100 * kTestSecond);
  engine.Checked(true, 100 * kTestSecond);
  EXPECT_EQ(engine.Ended(100 * kTestSecond + SupervisedEngine::kStableNs),
            kTestSecond);
}

TEST(SupervisedEngineTest, OneThatEndsAgainAndAgainIsUnwellSinceTheFirstEnd) {
  SupervisedEngine engine;
  engine.Started(1, kTestSecond);
  EXPECT_EQ(engine.unwell_ns(), 0u);
  engine.Checked(true, 2 * kTestSecond);
  engine.Ended(3 * kTestSecond);
  engine.Started(2, 4 * kTestSecond);
  engine.Checked(true, 5 * kTestSecond);
  engine.Ended(6 * kTestSecond);
  EXPECT_EQ(engine.unwell_ns(), 3 * kTestSecond) << "it served for a moment";
  engine.Started(3, 8 * kTestSecond);
  engine.Checked(true, 9 * kTestSecond);
  engine.Ended(9 * kTestSecond + SupervisedEngine::kStableNs);
  EXPECT_EQ(engine.unwell_ns(), 9 * kTestSecond + SupervisedEngine::kStableNs);
  engine.Started(4, 80 * kTestSecond);
  engine.AskedToEnd(81 * kTestSecond);
  engine.Ended(82 * kTestSecond);
  EXPECT_EQ(engine.unwell_ns(), 0u);
}

TEST(SupervisedEngineTest, OneWhoseCommandCannotBeRunIsNeverDueAgain) {
  SupervisedEngine engine;
  engine.Started(1, 0);
  engine.GiveUpUnlessItServed();
  engine.Ended(0);
  EXPECT_EQ(engine.state(), State::kGivenUp);
  EXPECT_FALSE(engine.IsDue(1000 * kTestSecond));
  SupervisedEngine served;
  served.Started(1, 0);
  served.Checked(true, 0);
  served.GiveUpUnlessItServed();
  served.Ended(0);
  EXPECT_TRUE(served.IsDue(1000 * kTestSecond));
}

TEST(SupervisedEngineTest, NothingIsCheckedWhileItIsDown) {
  SupervisedEngine engine;
  EXPECT_FALSE(engine.Checked(true, 1)) << "another program answers there";
  EXPECT_EQ(engine.state(), State::kDown);
}

TEST(SupervisedEngineTest, OneThatIsAskedToEndIsKilledWhenPatienceEnds) {
  SupervisedEngine engine;
  engine.AskedToEnd(0);
  EXPECT_EQ(engine.state(), State::kDown) << "nothing runs";
  engine.Started(1, 0);
  engine.Checked(true, 0);
  EXPECT_FALSE(engine.PatienceEnds(100 * kTestSecond))
      << "it was not asked to end";
  engine.AskedToEnd(5);
  EXPECT_EQ(engine.state(), State::kStopping);
  EXPECT_FALSE(engine.Checked(true, 6)) << "its health is of no interest";
  EXPECT_FALSE(engine.IsDue(100 * kTestSecond)) << "it still runs";
  const uint64_t end = 5 + SupervisedEngine::kPatienceNs;
  EXPECT_FALSE(engine.PatienceEnds(end - 1));
  engine.AskedToEnd(end - 1);
  EXPECT_TRUE(engine.PatienceEnds(end)) << "asking again gives no further time";
  EXPECT_FALSE(engine.PatienceEnds(end + 1)) << "once is enough";
  EXPECT_TRUE(engine.runs());
}

TEST(SupervisedEngineTest, OneThatWasAskedToEndMayStartAtOnceAgain) {
  SupervisedEngine engine;
  engine.Started(1, 0);
  EXPECT_EQ(engine.Ended(0), kTestSecond);
  engine.Started(2, kTestSecond);
  engine.AskedToEnd(kTestSecond);
  EXPECT_EQ(engine.Ended(2 * kTestSecond), 0u);
  EXPECT_FALSE(engine.runs());
  EXPECT_TRUE(engine.IsDue(2 * kTestSecond));
  engine.Started(3, 2 * kTestSecond);
  EXPECT_EQ(engine.Ended(2 * kTestSecond), kTestSecond) << "as if it were new";
}

}  // namespace
}  // namespace fineserve::fsctl

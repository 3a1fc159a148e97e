#include "tools/up/orphan_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace fineserve::fsctl {
namespace {

TEST(OrphanWatchTest, AnEngineIsKnownByItsProcessGroup) {
  int looks = 0;
  std::vector<pid_t> holders = {getpid()};
  OrphanWatch watch([&] {
    ++looks;
    return holders;
  });
  EXPECT_FALSE(watch.Has(getpgrp()));
  watch.Turn(1);
  EXPECT_TRUE(watch.Has(getpgrp()));
  EXPECT_FALSE(watch.Has(getpgrp() + 1));
  watch.Turn(2);
  EXPECT_EQ(looks, 1) << "all processes are looked at: not at each turn";
  holders.clear();
  watch.Turn(10'000'000'000);
  EXPECT_FALSE(watch.Has(getpgrp()));
}

TEST(OrphanWatchTest, HolderThatHasEndedIsNone) {
  OrphanWatch watch([] { return std::vector<pid_t>{-1, 1 << 30}; });
  watch.Turn(1);
  EXPECT_FALSE(watch.Has(0));
}

using Engines = std::vector<OrphanRoll::Engine>;

constexpr bool kOrphan = true, kServes = true, kRests = true;

TEST(OrphanRollTest, OneAfterAnother) {
  OrphanRoll roll;
  Engines engines = {{"a", kOrphan, kServes},
                     {"b", !kOrphan, kServes},
                     {"c", kOrphan, kServes}};
  EXPECT_EQ(roll.Next(engines), "a");
  engines[0].rests = true;
  EXPECT_EQ(roll.Next(engines), "");
  engines[0] = {"a", !kOrphan, !kServes};
  EXPECT_EQ(roll.Next(engines), "") << "it does not serve yet";
  engines[0].serves = true;
  EXPECT_EQ(roll.Next(engines), "c");
  engines[2].is_orphan = false;
  EXPECT_EQ(roll.Next(engines), "");
}

TEST(OrphanRollTest, WhereOneDoesNotComeBackTheOthersStay) {
  OrphanRoll roll;
  Engines engines = {{"a", kOrphan, kServes}, {"b", kOrphan, kServes}};
  ASSERT_EQ(roll.Next(engines), "a");
  engines[0] = {"a", !kOrphan, !kServes};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(roll.Next(engines), "");
  engines.erase(engines.begin());
  EXPECT_EQ(roll.Next(engines), "b") << "it has left the fleet";
}

TEST(OrphanRollTest, EngineThatIsDrainedForAnotherReasonIsWaitedFor) {
  OrphanRoll roll;
  EXPECT_EQ(
      roll.Next({{"a", kOrphan, kServes}, {"b", !kOrphan, kServes, kRests}}),
      "");
}

TEST(OrphanRollTest, OneThatIsOrphanedAgainIsRolledAgain) {
  OrphanRoll roll;
  const Engines engines = {{"a", kOrphan, kServes}};
  EXPECT_EQ(roll.Next(engines), "a");
  EXPECT_EQ(roll.Next(engines), "a");
}

TEST(OrphanRollTest, OneThatDoesNotServeIsLeftToStartOrEnd) {
  OrphanRoll roll;
  EXPECT_EQ(roll.Next({{"a", kOrphan, !kServes}}), "");
}

}  // namespace

}  // namespace fineserve::fsctl

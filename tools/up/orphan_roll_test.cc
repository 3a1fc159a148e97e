#include "tools/up/orphan_roll.h"

#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

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

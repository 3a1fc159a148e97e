#include "tools/fsctl/daemons/churn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/fsctl/daemons/fabricated_pool.h"

namespace fineserve::fsctl {
namespace {

using ::testing::Optional;

// Returns the state two seconds after FabricateObservation: slab 4 was
// returned, 2 and 5 were leased.
Observation Later() {
  Observation later = FabricateObservation();
  FabricateView(1, {{0, 84}, {1, 80}, {2, 1}, {5, 3}}, &later);
  later.pool.table.slabs[4].word = {abi::SlabState::kZeroing, 0, 0};
  later.view_scoreboards.at(1)->allocated_blocks = 500;
  later.view_scoreboards.at(1)->returned_slabs = 1;
  later.pool.table.counters.leases_granted += 2;
  later.pool.table.counters.slabs_returned += 1;
  later.at.monotonic_ns += 2 * kTestSecond;
  return later;
}

TEST(ChurnTest, SlabsThatChangedHandsAndBlocksAllocatedArePerSecond) {
  const Churn churn = ChurnBetween(FabricateObservation(), Later());
  EXPECT_TRUE(churn.per_second);
  EXPECT_THAT(churn.engines.at(1).leased, Optional(1.0));
  EXPECT_THAT(churn.engines.at(1).returned, Optional(0.5));
  EXPECT_THAT(churn.engines.at(1).allocated_blocks, Optional(250.0));
  EXPECT_EQ(churn.pool->leases_granted, 1);
  EXPECT_EQ(churn.pool->returned, 0.5);
  // Without a view, slabs are known, but not blocks.
  EXPECT_THAT(churn.engines.at(2).leased, Optional(0.0));
  EXPECT_FALSE(churn.engines.at(2).allocated_blocks.has_value());
}

TEST(ChurnTest, SlabThatWentAndCameBackUnderAnotherLeaseMovedTwice) {
  Observation later = Later();
  later.pool.table.slabs[0].word.lease = 999;
  const Churn churn = ChurnBetween(FabricateObservation(), later);
  EXPECT_THAT(churn.engines.at(1).leased, Optional(1.5));
  EXPECT_THAT(churn.engines.at(1).returned, Optional(1.0));
}

TEST(ChurnTest, AskingASlabBackOrDyingWithItMovesNothing) {
  Observation later = FabricateObservation();
  later.at.monotonic_ns += kTestSecond;
  later.pool.table.slabs[0].word.state = abi::SlabState::kReturning;
  later.pool.table.slabs[1].word.state = abi::SlabState::kQuarantined;
  const Churn churn = ChurnBetween(FabricateObservation(), later);
  EXPECT_THAT(churn.engines.at(1).leased, Optional(0.0));
  EXPECT_THAT(churn.engines.at(1).returned, Optional(0.0));
}

TEST(ChurnTest, NothingIsKnownAcrossDaemonsOrInNoTime) {
  Observation other = Later();
  other.pool.table.epoch += 1;
  EXPECT_FALSE(ChurnBetween(FabricateObservation(), other).pool.has_value());
  const Churn churn =
      ChurnBetween(FabricateObservation(), FabricateObservation());
  EXPECT_FALSE(churn.pool.has_value());
  EXPECT_FALSE(churn.engines.at(1).leased.has_value());
}

TEST(ChurnTest, CounterOfAnEngineThatWentBackIsNoRate) {
  Observation before = FabricateObservation();
  before.view_scoreboards.at(1)->allocated_blocks = 501;
  const Churn churn = ChurnBetween(before, Later());
  EXPECT_FALSE(churn.engines.at(1).allocated_blocks.has_value());
}

TEST(ChurnTest, TotalsAreTheEnginesOwnWord) {
  const Churn churn = TotalChurn(Later());
  EXPECT_FALSE(churn.per_second);
  EXPECT_THAT(churn.engines.at(1).leased, Optional(4.0 + 1));
  EXPECT_THAT(churn.engines.at(1).returned, Optional(1.0));
  EXPECT_EQ(churn.pool->leases_granted, 3 + 2);
  EXPECT_FALSE(churn.engines.at(2).leased.has_value());
}

}  // namespace
}  // namespace fineserve::fsctl

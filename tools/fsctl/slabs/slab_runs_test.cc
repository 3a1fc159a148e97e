#include "tools/fsctl/slabs/slab_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/fsctl/daemons/fabricated_pool.h"

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;

std::vector<SlabRun> RunsBy(const Observation& seen, SlabOrder order,
                            bool fold = true) {
  return SlabRuns(seen.pool.table, Figures(seen), fold, order);
}

std::vector<size_t> FirstSlabsBy(SlabOrder order, const Observation& seen) {
  std::vector<size_t> firsts;
  for (const SlabRun& run : RunsBy(seen, order)) firsts.push_back(run.first);
  return firsts;
}

// Slabs 0, 1 and 4 belong to the view, 2 and 5 are free, 3 is zeroing, 6
// quarantined, 7 whole.
TEST(SlabRunsTest, EachOrderKeepsThatOfSlabsAmongThoseAlike) {
  Observation seen = FabricateObservation();
  seen.pool.table.slabs[5].since_ns -= kTestSecond;
  EXPECT_THAT(FirstSlabsBy(SlabOrder::kSlab, seen),
              ElementsAre(0, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(FirstSlabsBy(SlabOrder::kState, seen),
              ElementsAre(2, 5, 0, 4, 7, 3, 6));
  EXPECT_THAT(FirstSlabsBy(SlabOrder::kFormat, seen),
              ElementsAre(2, 3, 5, 6, 0, 4, 7));
  EXPECT_THAT(FirstSlabsBy(SlabOrder::kEngine, seen),
              ElementsAre(2, 3, 5, 0, 4, 6, 7));
  EXPECT_THAT(FirstSlabsBy(SlabOrder::kAge, seen),
              ElementsAre(5, 0, 2, 3, 4, 6, 7));
  EXPECT_THAT(FirstSlabsBy(SlabOrder::kDensity, seen),
              ElementsAre(0, 4, 2, 3, 5, 6, 7));
}

TEST(SlabRunsTest, SlabsOfAViewAreOneRunOverTheirLeasesWithTheirBlocksAddedUp) {
  const auto runs = RunsBy(FabricateObservation(), SlabOrder::kSlab);
  EXPECT_EQ(runs[0].last, 1u);
  EXPECT_EQ(runs[0].leases, 2u);
  EXPECT_EQ(runs[0].blocks.count->used, 84u + 40);
  EXPECT_EQ(runs[0].blocks.count->usable, 84u + 85);
}

TEST(SlabRunsTest, WholeLeasesOfOneEngineAreRunsOfTheirOwn) {
  Pool pool = FabricatePool();
  pool.table.slabs[2].word.lease = 6;
  const auto runs = RunsBy(Observed(pool), SlabOrder::kSlab);
  EXPECT_EQ(runs[0].last, 1u);
  EXPECT_EQ(runs[1].first, 2u);
  EXPECT_EQ(runs[0].format, "whole");
}

TEST(SlabRunsTest, WithoutFoldingDensityOrdersSingleSlabs) {
  const auto runs = RunsBy(FabricateObservation(), SlabOrder::kDensity, false);
  EXPECT_EQ(runs[0].first, 0u);
  EXPECT_EQ(runs[1].first, 1u);
  EXPECT_EQ(runs[2].first, 4u);
}

TEST(SlabRunsTest, SumWithSomethingUnknownIsUnknown) {
  Observation seen = FabricateObservation();
  // Slab 5 belongs to an engine that has no view in the table.
  seen.pool.table.slabs[5].word = {abi::SlabState::kPartial, 2, 9};
  const auto runs = RunsBy(seen, SlabOrder::kState);
  const auto groups = SlabGroups(seen.pool.table, runs, SlabOrder::kState);
  EXPECT_EQ(groups[1].name, "partial");
  EXPECT_EQ(groups[1].slabs, 4u);
  EXPECT_TRUE(groups[1].blocks.in_view);
  EXPECT_FALSE(groups[1].blocks.count.has_value());
}

}  // namespace
}  // namespace fineserve::fsctl

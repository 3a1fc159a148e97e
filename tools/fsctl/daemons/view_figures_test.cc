#include "tools/fsctl/daemons/view_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/fsctl/daemons/fabricated_pool.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

TEST(ViewFiguresTest, FreeBlocksOfPartlyUsedSlabsAreStrandedThoseOfEmptyNot) {
  const ViewFigures f = Figures(FabricateObservation()).at(1);
  ASSERT_TRUE(f.known.ok()) << f.known;
  EXPECT_EQ(f.blocks.used, 124u);
  EXPECT_EQ(f.blocks.usable, 84u + 85 + 85);
  EXPECT_EQ(f.partly_used_slabs, 1u);
  EXPECT_EQ(f.empty_slabs, 1u);
  EXPECT_EQ(f.stranded_blocks, 45u);
  EXPECT_EQ(f.tail_waste, 0);
  // A slab of 64 MiB holds 85 1/3 blocks of 768 KiB. On average, two thirds of
  // a block are lost per slab.
  EXPECT_NEAR(f.straddle_waste, 0.00781, 1e-5);
}

TEST(ViewFiguresTest, EngineWithoutAViewHasNone) {
  EXPECT_TRUE(Figures(Observed(FabricatePool())).empty());
}

TEST(ViewFiguresTest, ScoreboardThatContradictsTheTableIsNotBelieved) {
  Observation seen = FabricateObservation();
  seen.view_scoreboards.at(1)->used[1] = 85;
  EXPECT_THAT(std::string(Figures(seen).at(1).known.message()),
              HasSubstr("85 used blocks in slab 0, which has 84"));
  seen.view_scoreboards.at(1)->used.resize(3);
  EXPECT_THAT(std::string(Figures(seen).at(1).known.message()),
              HasSubstr("covers 2 slabs, but the pool has 8"));
}

TEST(ViewFiguresTest, FormatThatFitsNoSlabIsReportedNotDividedBy) {
  Observation seen = FabricateObservation();
  seen.pool.table.engines[0].view.planes = 0;
  EXPECT_FALSE(Figures(seen).at(1).known.ok());
  seen.pool.table.engines[0].view.planes = 1000;
  EXPECT_FALSE(Figures(seen).at(1).known.ok());
}

}  // namespace
}  // namespace fineserve::fsctl

#include "tools/lab/engines/tinyserve/kv/block_source.h"

#include <gmock/gmock.h>

namespace tinyserve {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

TEST(OwnBlocksTest, AllButTheNullBlockCanBeHadOnce) {
  OwnBlocks source(4);
  EXPECT_EQ(source.held_blocks(), 3u);
  std::vector<BlockId> blocks;
  EXPECT_TRUE(source.Allocate(2, &blocks));
  EXPECT_TRUE(source.Allocate(1, &blocks));
  EXPECT_THAT(blocks, UnorderedElementsAre(1, 2, 3));
  EXPECT_EQ(source.used_blocks(), 3u);
  EXPECT_FALSE(source.Allocate(1, &blocks));
}

TEST(OwnBlocksTest, AllocationThatFailsTakesNothing) {
  OwnBlocks source(4);
  std::vector<BlockId> blocks = {9};
  EXPECT_FALSE(source.Allocate(4, &blocks));
  EXPECT_THAT(blocks, ElementsAre(9));
  EXPECT_EQ(source.used_blocks(), 0u);
}

TEST(OwnBlocksTest, FreedBlocksAreAllocatedAgain) {
  OwnBlocks source(100);
  std::vector<BlockId> blocks;
  EXPECT_TRUE(source.Allocate(10, &blocks));
  source.Free({blocks[3], blocks[7]});
  EXPECT_EQ(source.used_blocks(), 8u);
  std::vector<BlockId> again;
  EXPECT_TRUE(source.Allocate(2, &again));
  EXPECT_THAT(again, UnorderedElementsAre(blocks[3], blocks[7]));
}

}  // namespace
}  // namespace tinyserve

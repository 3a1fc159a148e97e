#include "daemon/scheduling/local/kv_room.h"

#include <gtest/gtest.h>

#include "daemon/scheduling/local/gemma_fixture.h"

namespace fineserve::sched {
namespace {

// Gemma 3 27B in vLLM with --max-model-len 131072: the longest request takes
// 8,192 + 6 · 193 blocks, 14 tokens each.
constexpr uint64_t kBlock = kGemmaBlock;
const KvRoom kRoom{9350 * kBlock, 9350 * kBlock, 16, kGemma, kBlock};
const KvRoom kPlain{10'000, 10'000, 16};

TEST(KvRoomTest, WithoutAShapeATokenTakesAToken) {
  EXPECT_EQ(RoomFor(kPlain, 1000, Phase::kFilling), 1016u);
  const KvClaim claim = ClaimOf(kPlain, 1000, 100, Phase::kFilling);
  EXPECT_EQ(claim.present, 1016u);
  EXPECT_EQ(claim.end(), 1116u);
}

TEST(KvRoomTest, BlocksOfAllGroupsCount) {
  EXPECT_EQ(RoomFor(kRoom, 1000, Phase::kFilling), 441 * kBlock);
  EXPECT_EQ(ClaimOf(kRoom, 1000, 0, Phase::kFilling).end(), 441 * kBlock);
}

TEST(KvRoomTest, AClaimsEndIsThatOfItsBlocks) {
  for (uint32_t tokens = 1; tokens < 5000; tokens += 37) {
    for (const uint32_t growth : {0u, 1u, 100u, kHorizonTokens}) {
      for (const Phase phase : {Phase::kFilling, Phase::kAnswering}) {
        const KvClaim claim = ClaimOf(kRoom, tokens, growth, phase);
        ASSERT_EQ(claim.end(), RoomFor(kRoom, tokens + growth, phase));
      }
    }
  }
}

TEST(KvRoomTest, AClaimIsBelowWhatItsBlocksTakeByAPartOfABlockAtMost) {
  for (uint32_t tokens = 1; tokens < 5000; tokens += 37) {
    const KvClaim claim =
        ClaimOf(kRoom, tokens, kHorizonTokens, Phase::kAnswering);
    for (uint32_t step = 0; step <= kHorizonTokens; step += 16) {
      ASSERT_GE(claim.present + step * claim.slope / kHorizonTokens + kBlock,
                RoomFor(kRoom, tokens + step, Phase::kAnswering))
          << tokens << " + " << step;
    }
  }
}

TEST(KvRoomTest, GrowthEndsWhereTheEngineIsFull) {
  EXPECT_EQ(GrowthThatFits(kPlain, 9'900, 200, Phase::kFilling), 84u);
  EXPECT_EQ(GrowthThatFits(kPlain, 9'900, 84, Phase::kFilling), 84u);
  EXPECT_EQ(GrowthThatFits(kPlain, 20'000, 200, Phase::kFilling), 0u);
  KvRoom room = kRoom;
  room.most_tokens = 7 * 70 * kBlock;
  EXPECT_EQ(GrowthThatFits(room, 1000, 512, Phase::kFilling), 120u);
}

TEST(KvRoomTest, ManyPromptsTakeMoreThanOneOfThemAll) {
  EXPECT_EQ(RoomForPrompts(kPlain, 10, 1000), 1000u);
  EXPECT_EQ(RoomForPrompts(kRoom, 0, 0), 0u);
  EXPECT_EQ(RoomForPrompts(kRoom, 10, 10'000), 4410 * kBlock);
}

}  // namespace
}  // namespace fineserve::sched

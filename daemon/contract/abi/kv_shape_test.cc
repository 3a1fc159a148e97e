#include "daemon/contract/abi/kv_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <string>

namespace fineserve::abi {
namespace {

// Gemma 3 27B in vLLM: 10 layers attend to all tokens and 52 layers to 1,024
// tokens, in groups of at most 10.
constexpr KvShape kGemma = {{{1, 16, 0}, {6, 16, 1024}}, 0, 2048, 1, 0};
// 36 of Qwen3-Next's layers keep a state, 12 attend to everything; its states
// are as large as 544 tokens.
constexpr KvShape kQwenNext = {{{1, 544, 0}}, 3, 2048, 1, 0};

struct ShapeCase {
  std::string name;
  KvShape shape;
  uint64_t tokens, in_flight, blocks;
};
class KvShapeTest : public ::testing::TestWithParam<ShapeCase> {};

TEST_P(KvShapeTest, ARequestTakesSoManyBlocks) {
  const ShapeCase& c = GetParam();
  EXPECT_EQ(BlocksOf(c.shape, c.tokens, c.in_flight), c.blocks);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, KvShapeTest,
    ::testing::Values(
        ShapeCase{"OneGroup", {{{1, 16, 0}}, 0, 0, 0, 0}, 1000, 2048, 63},
        ShapeCase{"ShorterThanTheWindow", kGemma, 1000, 2048, 7 * 63},
        ShapeCase{"LongerWhileItIsFilled", kGemma, 100'000, 2048,
                  6250 + 6 * (192 + 1)},
        ShapeCase{"LongerAfterwards", kGemma, 100'000, 1, 6250 + 6 * (64 + 1)},
        ShapeCase{"States", kQwenNext, 1000, 2048, 3 + 2},
        ShapeCase{"StatesAlone", {{}, 2, 0, 0, 0}, 1000, 2048, 2},
        ShapeCase{"NoTokens", kGemma, 0, 2048, 0}),
    [](const auto& param) { return param.param.name; });

// Returns the peak of one group's blocks of one request, computed like vLLM's
// SlidingWindowManager: before it allocates a step's blocks, it frees those
// that no token after the ended steps attends to.
uint64_t PeakOf(const KvGroups& group, uint64_t tokens, uint64_t step,
                size_t steps_in_flight) {
  uint64_t peak = 0, ended = 0, computed = 0;
  std::deque<uint64_t> in_flight;
  while (computed < tokens) {
    if (in_flight.size() == steps_in_flight) {
      ended += in_flight.front();
      in_flight.pop_front();
    }
    in_flight.push_back(std::min(step, tokens - computed));
    computed += in_flight.back();
    const uint64_t skipped = group.window_tokens == 0 ? 0
                             : ended + 1 < group.window_tokens
                                 ? 0
                                 : ended + 1 - group.window_tokens;
    peak = std::max(peak, DivideUp(computed, group.block_tokens) -
                              skipped / group.block_tokens);
  }
  return peak;
}

TEST(KvShapeTest, IsTheMostThatAnyOrderOfStepsTakes) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const KvGroups group = {1, 1 + static_cast<uint32_t>(random() % 40),
                            static_cast<uint32_t>(random() % 300)};
    const uint64_t tokens = 1 + random() % 4000;
    const uint64_t step = 1 + random() % 300;
    const size_t steps = 1 + random() % 3;
    KvShape shape = {};
    shape.groups[0] = group;
    const uint64_t reported = BlocksOf(shape, tokens, step * steps);
    const uint64_t peak = PeakOf(group, tokens, step, steps);
    ASSERT_LE(peak, reported) << "round " << round;
    if (tokens < group.window_tokens + 2 * step * steps) continue;
    // The positions of the window's two ends within their blocks are unknown.
    ASSERT_LE(reported, peak + (group.window_tokens > 0 ? 2 : 0)) << round;
  }
}

TEST(KvShapeTest, ShapesThatCannotBeAreNotValid) {
  EXPECT_TRUE(IsValid({}));
  EXPECT_TRUE(IsValid(kGemma));
  EXPECT_FALSE(IsValid({{{1, 0, 0}}, 0, 0, 0, 0}));
  EXPECT_FALSE(IsValid({{{kMostKvGroups + 1, 16, 0}}, 0, 0, 0, 0}));
  EXPECT_FALSE(IsValid({{}, kMostKvGroups + 1, 0, 0, 0}));
}

}  // namespace
}  // namespace fineserve::abi

#include "tools/lab/sim/overload/batch_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace fineserve::sim {
namespace {

constexpr BatchCost kCost{.005, 100, 900, 700};

TEST(BatchCostTest, FitFindsTheCoefficientsThatMadeTheSamples) {
  std::mt19937_64 random(1);
  std::vector<CostSample> samples;
  for (int i = 0; i < 40; ++i) {
    const auto pairs = static_cast<double>(random() % 9'000'000);
    const auto tokens = static_cast<double>(1 + random() % 4000);
    const auto chunks = static_cast<double>(1 + random() % 50);
    samples.push_back({pairs, tokens, chunks, kCost.Us(pairs, tokens, chunks)});
  }
  const BatchCost fit = FitBatchCost(samples);
  EXPECT_NEAR(fit.alpha, kCost.alpha, 1e-9);
  EXPECT_NEAR(fit.beta, kCost.beta, 1e-6);
  EXPECT_NEAR(fit.gamma, kCost.gamma, 1e-4);
  EXPECT_NEAR(fit.lambda, kCost.lambda, 1e-4);
}

TEST(BalancePropertyTest, PiecesKeepEveryTokenAndCostAlike) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::vector<LookaheadChunk> all;
    double tokens = 0;
    for (uint64_t i = 0; i < 5 + random() % 100; ++i) {
      const bool decodes = random() % 3 > 0;
      all.push_back({static_cast<double>(random() % 5000),
                     decodes ? 1. : static_cast<double>(2 + random() % 1500)});
      tokens += all.back().tokens;
    }
    const auto pieces = Balance(kCost, all, 2048);
    double kept = 0;
    for (const auto& piece : pieces) {
      double own = 0;
      for (const LookaheadChunk& c : piece) own += c.tokens;
      kept += own;
      ASSERT_TRUE(own <= 2048 || piece.size() <= 2) << own;
    }
    ASSERT_DOUBLE_EQ(kept, tokens);
    if (pieces.size() != 2) continue;
    const double first = kCost.Us(pieces[0]), second = kCost.Us(pieces[1]);
    // The tolerance is one token's cost, and the γ that a split chunk pays
    // twice.
    ASSERT_NEAR(first, second, 2 * kCost.gamma + 500);
  }
}

}  // namespace
}  // namespace fineserve::sim

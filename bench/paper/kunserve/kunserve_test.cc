#include <gtest/gtest.h>

#include "bench/paper/kunserve/figure15.h"
#include "bench/paper/kunserve/kunserve_scene.h"

namespace fineserve::bench {
namespace {

TEST(KunServeCostTest, EquationsPredictChunksThatTheyWereNotFittedTo) {
  const std::vector<CostError> points = CostErrors();
  ASSERT_EQ(points.size(), 10u);
  double most_tokens = 0;
  for (const CostError& p : points) {
    EXPECT_LE(p.off, 5) << p.tokens << " after " << p.prefix;
    most_tokens = std::max(most_tokens, p.off_tokens);
  }
  EXPECT_GT(most_tokens, 15);
}

TEST(KunServeSceneTest, BurstsComeTwice) {
  for (const double t : {46., 119., 441., 514.}) EXPECT_TRUE(InBurst(t)) << t;
  for (const double t : {0., 44., 121., 439., 516.}) {
    EXPECT_FALSE(InBurst(t)) << t;
  }
}

TEST(KunServeSceneTest, KvLastsUntilItIsShortForGood) {
  sim::ClusterResult r;
  r.asked.assign(100, .5);
  for (size_t t = 60; t < 70; ++t) r.asked[t] = 2;
  for (size_t t = 80; t < 100; ++t) r.asked[t] = 2;
  EXPECT_EQ(KvLastsSeconds(r, 95), 80 - kBurstAt);
  // KV is sufficient again after arrivals end.
  r.asked[98] = .5;
  EXPECT_EQ(KvLastsSeconds(r, 95), 80 - kBurstAt);
}

}  // namespace
}  // namespace fineserve::bench

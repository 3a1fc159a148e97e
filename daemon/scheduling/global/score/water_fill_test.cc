#include "daemon/scheduling/global/score/water_fill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace fineserve::plan {
namespace {

struct Party {
  TokenCurve curve;
  Bucket bucket;
};

std::vector<Party> Draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  std::vector<Party> parties(2 + random() % 4);
  for (Party& p : parties) {
    p.curve = {between(0.005, 0.03), between(1e-5, 1e-3), between(1e7, 5e8),
               256, 0};
    p.bucket = BucketOf(p.curve, 1, p.curve.sequence_bytes, between(2, 200));
  }
  return parties;
}

double Tokens(const Party& p, double bytes) {
  return p.curve.Speed(bytes / p.curve.sequence_bytes, 1);
}

TEST(WaterFill, GivesAwayExactlyWhatThereIs) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::vector<Party> parties = Draw(seed);
    std::vector<Bucket> buckets;
    double least = 0, most = 0;
    for (const Party& p : parties) {
      buckets.push_back(p.bucket);
      least += p.bucket.least;
      most += p.bucket.most;
    }
    for (const double part : {0.01, 0.3, 0.7, 0.99}) {
      const double bytes = least + part * (most - least);
      const double level = WaterLevel(buckets, bytes);
      double given = 0;
      for (const Bucket& b : buckets) given += b.At(level);
      EXPECT_NEAR(given, bytes, 1e-9 * bytes) << "seed " << seed;
    }
    EXPECT_TRUE(std::isinf(WaterLevel(buckets, 2 * most)));
    EXPECT_EQ(WaterLevel(buckets, least / 2), 0);
  }
}

// No transfer of bytes from one party to another makes more tokens. Since X is
// concave, no other change does.
TEST(WaterFill, NoExchangeOfBytesMakesMoreTokens) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const std::vector<Party> parties = Draw(seed);
    std::vector<Bucket> buckets;
    double bytes = 0;
    for (const Party& p : parties) {
      buckets.push_back(p.bucket);
      bytes += 0.5 * (p.bucket.least + p.bucket.most);
    }
    const double level = WaterLevel(buckets, bytes);
    const double moved = 1e-4 * bytes;
    for (const Party& from : parties) {
      for (const Party& to : parties) {
        const double here = from.bucket.At(level), there = to.bucket.At(level);
        if (here - moved < from.bucket.least) continue;
        if (there + moved > to.bucket.most) continue;
        EXPECT_LE(Tokens(from, here - moved) + Tokens(to, there + moved),
                  Tokens(from, here) + Tokens(to, there) + 1e-9)
            << "seed " << seed;
      }
    }
  }
}

TEST(WaterFill, BatchForIsTheInverseOfSpeed) {
  const TokenCurve c{0.01, 1e-4, 1e8, 256, 0};
  for (const double slowdown : {1.0, 1.9}) {
    const double tokens = c.Speed(40, slowdown);
    EXPECT_NEAR(c.BatchFor(tokens, slowdown), 40, 1e-9);
  }
  EXPECT_EQ(c.BatchFor(1e9, 1), 256) << "more than any batch gives";
}

}  // namespace
}  // namespace fineserve::plan

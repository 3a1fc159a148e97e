#include "daemon/scheduling/local/policy/floor.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace fineserve::sched {
namespace {

Queued TenantRequest(uint64_t id, uint32_t tokens, uint64_t tenant = 0,
                     Micros deadline = 1000) {
  return {{tokens, RequestId{id}, deadline}, ModelId{0}, 0, 0, tenant};
}

// Starts `count` short requests one after the other.
void StartShort(Floor* floor, uint64_t first_id, int count,
                uint64_t tenant = 0) {
  for (int i = 0; i < count; ++i) {
    const Queued r =
        TenantRequest(first_id + static_cast<uint64_t>(i), 100, tenant);
    floor->Remove(r, floor->Add(r));
    floor->Started(r);
  }
}

TEST(FloorTest, LongOneIsOwedAfterItsPartOfOthers) {
  Floor floor(0.1);
  floor.Add(TenantRequest(1, 2000));
  StartShort(&floor, 10, 199);
  EXPECT_FALSE(floor.Owed());
  StartShort(&floor, 500, 1);
  ASSERT_TRUE(floor.Owed());
  EXPECT_EQ(*floor.Owed(), RequestId{1});
}

TEST(FloorTest, NoShareNoFloor) {
  Floor floor(0);
  floor.Add(TenantRequest(1, 2000));
  StartShort(&floor, 10, 1000);
  EXPECT_FALSE(floor.Owed());
}

TEST(FloorTest, TenantWithManyRequestsDoesNotStarveAnother) {
  Floor floor(0.5);
  floor.Add(TenantRequest(1, 100, 7));
  StartShort(&floor, 10, 2, 8);
  ASSERT_TRUE(floor.Owed());
  EXPECT_EQ(*floor.Owed(), RequestId{1});
}

TEST(FloorTest, FlowThatDidWellOwesNothingLater) {
  Floor floor(0.5);
  floor.Add(TenantRequest(1, 100));
  StartShort(&floor, 10, 1000);  // of its own flow
  floor.Remove(TenantRequest(2, 2000), floor.Add(TenantRequest(2, 2000)));
  floor.Started(TenantRequest(2, 2000));
  EXPECT_TRUE(floor.Owed()) << "a debt of 100,000 tokens would outlast this";
}

TEST(FloorTest, FlowThatLeavesIsForgotten) {
  Floor floor(0.5);
  floor.Remove(TenantRequest(1, 2000), floor.Add(TenantRequest(1, 2000)));
  EXPECT_EQ(floor.flows(), 0u);
  StartShort(&floor, 10, 1000);
  EXPECT_FALSE(floor.Owed());
}

TEST(FloorTest, SoonestOfAFlowHasItsTurn) {
  Floor floor(0.5);
  floor.Add(TenantRequest(1, 2000, 0, 900));
  floor.Add(TenantRequest(2, 2000, 0, 800));
  StartShort(&floor, 10, 100);
  ASSERT_TRUE(floor.Owed());
  EXPECT_EQ(*floor.Owed(), RequestId{2});
}

// Whichever other requests are started, no flow waits for more tokens of others
// than the header says.
TEST(FloorPropertyTest, NoFlowWaitsLongerThanTheBound) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  constexpr double kShare = 0.2;
  Floor floor(kShare);
  constexpr uint32_t kFlows = 4;
  // One waiting request for each of four tenants: short for the first, who is
  // favoured, long for the others.
  std::vector<Queued> waiting;
  std::vector<Calendar::Handle> handles(kFlows);
  std::vector<double> waited(kFlows, 0);
  for (uint32_t t = 0; t < kFlows; ++t) {
    waiting.push_back(TenantRequest(t + 1, 100 + 500 * t, t));
    handles[t] = floor.Add(waiting[t]);
  }
  uint64_t id = 100;
  size_t owed_turns = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto owed = floor.Owed();
    owed_turns += owed ? 1 : 0;
    size_t pick = 0;
    for (size_t t = 0; owed && t < kFlows; ++t) {
      if (waiting[t].waiting.id == *owed) pick = t;
    }
    const Queued started = waiting[pick];
    floor.Remove(started, handles[pick]);
    floor.Started(started);
    const double tokens = started.waiting.tokens;
    for (double& w : waited) w += tokens;
    waited[pick] = 0;
    waiting[pick] = TenantRequest(
        ++id, 100 + static_cast<uint32_t>(random() % 500 * pick), pick);
    handles[pick] = floor.Add(waiting[pick]);
    for (size_t t = 0; t < kFlows; ++t) {
      // The bound is the flow's own p · flows / share, and one turn of each
      // other flow before it.
      ASSERT_LE(waited[t], 1600 * kFlows / kShare + 1600 * kFlows);
    }
  }
  EXPECT_GT(owed_turns, 100u);
}

}  // namespace
}  // namespace fineserve::sched

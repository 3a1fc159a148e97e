#include "daemon/scheduling/evict/eviction_policy.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace fineserve::evict {
namespace {

using sched::Micros;

constexpr Micros kSecond = 1'000'000;
constexpr uint64_t kGiB = 1ULL << 30;

IdleEngine Engine(double chance, Micros slo = kSecond, Micros idle = 0) {
  IdleEngine engine;
  engine.bytes = 16 * kGiB;
  engine.idle = idle;
  engine.here = 3600 * kSecond;
  engine.activation = 2 * kSecond;
  engine.slo_ttft = slo;
  engine.chance = chance;
  return engine;
}

absl::optional<size_t> Slack(const std::vector<IdleEngine>& idle,
                             RoomFor reason = RoomFor::kRequests) {
  return WhoLeaves(EvictionPolicy::kSlack, reason, idle);
}

TEST(EvictionPolicyTest, NoneLeavesWhereNoneIsIdle) {
  EXPECT_EQ(Slack({}), absl::nullopt);
}

TEST(EvictionPolicyTest, LeastLikelyLeavesFirst) {
  EXPECT_EQ(Slack({Engine(.9), Engine(.1), Engine(.5)}), 1u);
}

TEST(EvictionPolicyTest, SlackThatHoldsTheActivationGoesBeforeChance) {
  const IdleEngine patient = Engine(.9, 3 * kSecond);
  EXPECT_EQ(Slack({Engine(.2), patient}), 1u);
}

TEST(EvictionPolicyTest, LargerOneLeavesIfTheRestIsEqual) {
  IdleEngine small = Engine(.5);
  small.bytes = kGiB;
  EXPECT_EQ(Slack({small, Engine(.5)}), 1u);
}

TEST(EvictionPolicyTest, EngineThatHasJustComeStaysIfAnotherCanLeave) {
  IdleEngine fresh = Engine(.01);
  fresh.here = 19 * kSecond;
  EXPECT_EQ(Slack({fresh, Engine(.9)}), 1u);
  EXPECT_EQ(Slack({fresh}), 0u) << "requests wait";
  EXPECT_EQ(Slack({fresh}, RoomFor::kKv), absl::nullopt);
  fresh.here = 21 * kSecond;
  EXPECT_EQ(Slack({fresh, Engine(.9)}), 0u);
}

TEST(EvictionPolicyTest, NextRequestOfAModelTakesTheMemoryOfALessLikelyOne) {
  const auto for_next = [](double chance, double of_asker) {
    return WhoLeaves(EvictionPolicy::kSlack, RoomFor::kNext, {Engine(chance)},
                     Engine(of_asker));
  };
  EXPECT_EQ(for_next(.2, .3), 0u);
  EXPECT_EQ(for_next(.3, .2), absl::nullopt);
}

// Otherwise a small model that gets a request now and then would push out a
// large one that always has some.
TEST(EvictionPolicyTest, SmallModelDoesNotTakeThePlaceOfALikelierLargeOne) {
  IdleEngine small = Engine(.5);
  small.bytes = kGiB;
  EXPECT_EQ(
      WhoLeaves(EvictionPolicy::kSlack, RoomFor::kNext, {Engine(.9)}, small),
      absl::nullopt);
}

TEST(EvictionPolicyTest, LruTakesTheLongestIdle) {
  EXPECT_EQ(WhoLeaves(EvictionPolicy::kLru, RoomFor::kRequests,
                      {Engine(0, 1, 3), Engine(1, 1, 9), Engine(0, 1, 5)}),
            1u);
}

TEST(EvictionPolicyTest, PrismTakesTheLargestSloOfThoseIdleFor45Seconds) {
  const auto prism = [](const std::vector<IdleEngine>& idle) {
    return WhoLeaves(EvictionPolicy::kPrism, RoomFor::kKv, idle);
  };
  EXPECT_EQ(prism({Engine(0, kSecond, 44 * kSecond)}), absl::nullopt);
  EXPECT_EQ(prism({Engine(0, 9 * kSecond, 44 * kSecond),
                   Engine(0, 2 * kSecond, 45 * kSecond),
                   Engine(0, 3 * kSecond, 46 * kSecond)}),
            2u);
}

// Requests that wait always get the memory of an idle engine, and no engine
// that has just come leaves for KV.
TEST(EvictionPolicyTest, HistoriesKeepTheirPromises) {
  std::mt19937_64 random(3);
  const auto upto = [&](uint64_t most) {
    return static_cast<Micros>(random() % most);
  };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<IdleEngine> idle(1 + random() % 8);
    for (IdleEngine& e : idle) {
      e.bytes = 1 + random() % (64 * kGiB);
      e.idle = upto(3'600'000'000);
      e.here = upto(3'600'000'000);
      e.activation = upto(5'000'000);
      e.slo_ttft = upto(5'000'000);
      e.chance = static_cast<double>(random() % 1001) * 1e-3;
    }
    for (const auto policy : {EvictionPolicy::kSlack, EvictionPolicy::kLru,
                              EvictionPolicy::kPrism}) {
      const auto for_requests = WhoLeaves(policy, RoomFor::kRequests, idle);
      if (policy != EvictionPolicy::kPrism) {
        ASSERT_TRUE(for_requests) << "requests wait for ever";
      }
      const auto for_kv = WhoLeaves(policy, RoomFor::kKv, idle);
      if (!for_kv) continue;
      ASSERT_LT(*for_kv, idle.size());
      if (policy != EvictionPolicy::kSlack) continue;
      ASSERT_GE(idle[*for_kv].here, 10 * idle[*for_kv].activation);
    }
  }
}

// Tests who is asked for 10 bytes, in which order, and how many bytes come.
class MakeRoomTest : public ::testing::Test {
 protected:
  std::string Ask(uint64_t idle_bytes) {
    std::string asked;
    const auto evict = [&](bool may_rest) {
      asked += may_rest ? "rest " : "idle ";
      return may_rest ? rests_ : leaves_;
    };
    const auto ask_pool = [&] {
      asked += "pool ";
      return of_pool_;
    };
    const uint64_t coming = MakeRoom(10, {idle_bytes, evict, ask_pool});
    return absl::StrCat(asked, coming);
  }

  Room leaves_ = Room::kNone;
  Room rests_ = Room::kNone;
  uint64_t of_pool_ = 0;
};

TEST_F(MakeRoomTest, IdleSlabsThenIdleEnginesThenBusySlabsThenBusyEngines) {
  EXPECT_EQ(Ask(9), "idle pool rest 0");
  rests_ = Room::kComes;
  EXPECT_EQ(Ask(9), "idle pool rest 10");
  of_pool_ = 12;
  EXPECT_EQ(Ask(9), "idle pool 12");
  leaves_ = Room::kComes;
  EXPECT_EQ(Ask(9), "idle 10");
  EXPECT_EQ(Ask(10), "pool 12") << "they are there: no engine has to leave";
}

TEST_F(MakeRoomTest, ForANextRequestNoSlabOfABusyEngineLeaves) {
  leaves_ = Room::kNotForNext;
  of_pool_ = 12;
  EXPECT_EQ(Ask(9), "idle 0");
}

}  // namespace
}  // namespace fineserve::evict

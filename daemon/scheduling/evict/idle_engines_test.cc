#include "daemon/scheduling/evict/idle_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace fineserve::evict {
namespace {

using sched::Micros;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Activity = IdleEngines::Activity;

constexpr Micros kMinute = 60'000'000;

IdleEngines::Rules Rules(const char* name, Micros evict_after = 0) {
  return {name, name, true, evict_after, kMinute};
}
constexpr Residence kHere = {1 << 30, 1000};

TEST(IdleEnginesTest, NoneMayLeaveUnlessAnEngineSaysSo) {
  EXPECT_FALSE(IdleEngines(EvictionPolicy::kLru, {{"a"}}).any());
  EXPECT_TRUE(IdleEngines(EvictionPolicy::kLru, {{"a"}, Rules("b")}).any());
}

TEST(IdleEnginesTest, LeavesByItselfAfterItsTimeAndIsNamedOnceEachTime) {
  IdleEngines engines(EvictionPolicy::kSlack,
                      {Rules("a", kMinute), Rules("b")});
  for (const size_t engine : {0u, 1u})
    engines.Saw(engine, Activity::kIdle, 1, kHere);
  EXPECT_THAT(engines.Due(kMinute), IsEmpty());
  EXPECT_THAT(engines.Due(kMinute + 1), ElementsAre(0));
  EXPECT_THAT(engines.Due(kMinute + 2), IsEmpty());
  EXPECT_THAT(engines.Due(2 * kMinute + 1), ElementsAre(0));
  engines.Saw(0, Activity::kBusy, 2 * kMinute + 2, kHere);
  EXPECT_THAT(engines.Due(9 * kMinute), IsEmpty());
}

TEST(IdleEnginesTest, OneThatIsOffLeavesOnceItIsIdle) {
  IdleEngines engines(EvictionPolicy::kSlack,
                      {Rules("off"), Rules("on"), {"stays"}});
  Residence off = kHere;
  off.is_off = true;
  engines.Saw(0, Activity::kBusy, 1, off);
  engines.Saw(1, Activity::kIdle, 1, kHere);
  engines.Saw(2, Activity::kIdle, 1, off);
  EXPECT_THAT(engines.Due(kMinute), IsEmpty());
  engines.Saw(0, Activity::kIdle, kMinute, off);
  const Micros leaves = kMinute + IdleEngines::kOffLeaves;
  EXPECT_THAT(engines.Due(leaves - 1), IsEmpty());
  EXPECT_THAT(engines.Due(leaves), ElementsAre(0));
  engines.Saw(0, Activity::kIdle, leaves + 1, kHere);  // wanted again
  EXPECT_THAT(engines.Due(9 * kMinute), IsEmpty());
}

// Both are idle for the same time.
TEST(IdleEnginesTest, RareModelLeavesBeforeOneThatIsAskedOften) {
  IdleEngines engines(EvictionPolicy::kSlack, {Rules("often"), Rules("rare")});
  Micros now = 0;
  for (int minute = 0; minute < 600; ++minute, now += kMinute) {
    engines.Saw(0, Activity::kBusy, now, kHere);
    engines.Saw(0, Activity::kIdle, now + 1, kHere);
    if (minute % 60 != 0) continue;
    engines.Saw(1, Activity::kBusy, now, kHere);
    engines.Saw(1, Activity::kIdle, now + 1, kHere);
  }
  for (const size_t e : {0u, 1u}) engines.Saw(e, Activity::kBusy, now, kHere);
  for (const size_t e : {0u, 1u})
    engines.Saw(e, Activity::kIdle, now + 1, kHere);
  now += kMinute / 2;
  EXPECT_EQ(engines.WhoLeaves(RoomFor::kRequests, "", 0, now), 1u);
  IdleEngines next(EvictionPolicy::kSlack, {Rules("rare"), Rules("often")});
  next.GoOnFrom(engines);
  EXPECT_EQ(next.WhoLeaves(RoomFor::kRequests, "", 0, now), 0u);
}

TEST(IdleEnginesTest, NeitherAwayNorMovingNorTheAskerLeaves) {
  IdleEngines engines(EvictionPolicy::kLru,
                      {Rules("away"), Rules("moves"), Rules("asker")});
  engines.Saw(0, Activity::kIdle, 1, Residence{0, 1});
  engines.Saw(1, Activity::kIdle, 1, absl::nullopt);
  engines.Saw(2, Activity::kIdle, 1, kHere);
  EXPECT_EQ(engines.WhoLeaves(RoomFor::kRequests, "asker", 0, 2),
            absl::nullopt);
  EXPECT_FALSE(engines.LetOneRest("asker", 0, 2)) << "none is busy";
}

TEST(IdleEnginesTest, NoneLeavesForMoreThanAllCouldGive) {
  IdleEngines engines(EvictionPolicy::kSlack,
                      {Rules("idle"), Rules("busy"), Rules("asker")});
  engines.Saw(0, Activity::kIdle, 1, kHere);
  engines.Saw(1, Activity::kBusy, 1, kHere);
  const uint64_t both = 2 * kHere.bytes;
  EXPECT_EQ(engines.WhoLeaves(RoomFor::kRequests, "asker", both, 2), 0u);
  EXPECT_EQ(engines.WhoLeaves(RoomFor::kRequests, "asker", both + 1, 2),
            absl::nullopt);
  EXPECT_EQ(engines.WhoLeaves(RoomFor::kKv, "", both, 2), absl::nullopt)
      << "no busy one rests for that";
  EXPECT_TRUE(engines.LetOneRest("asker", both, 2));
  EXPECT_FALSE(engines.LetOneRest("asker", both + 1, 2));
}

TEST(IdleEnginesTest, OneThatHasDeclinedIsAskedLastAndOnlyIfOthersWait) {
  IdleEngines engines(EvictionPolicy::kLru,
                      {Rules("declined", kMinute), Rules("other"), Rules("c")});
  Residence declined = kHere;
  declined.has_declined = true;
  engines.Saw(0, Activity::kIdle, 1, declined);
  engines.Saw(1, Activity::kIdle, 2, kHere);
  const auto leaves = [&](RoomFor reason, uint64_t bytes) {
    return engines.WhoLeaves(reason, "c", bytes, 3);
  };
  EXPECT_EQ(leaves(RoomFor::kRequests, 2 * kHere.bytes), 1u);
  engines.Saw(1, Activity::kIdle, 3, Residence{0, 1});  // it has left
  EXPECT_EQ(leaves(RoomFor::kRequests, kHere.bytes), 0u);
  EXPECT_EQ(leaves(RoomFor::kStart, kHere.bytes), 0u);
  EXPECT_EQ(leaves(RoomFor::kKv, kHere.bytes), absl::nullopt);
  EXPECT_EQ(leaves(RoomFor::kNext, kHere.bytes), absl::nullopt);
  EXPECT_THAT(engines.Due(2 * kMinute), IsEmpty());
}

TEST(IdleEnginesTest, OneThatHasDeclinedRestsLast) {
  IdleEngines engines(EvictionPolicy::kSlack, {Rules("declined"), Rules("b")});
  Residence declined = kHere;
  declined.has_declined = true;
  engines.Saw(0, Activity::kBusy, 1, declined);
  engines.Saw(1, Activity::kBusy, 2, kHere);
  EXPECT_TRUE(engines.LetOneRest("asker", kHere.bytes, kMinute));
  EXPECT_TRUE(engines.Rests(1, kMinute));
  engines.Saw(1, Activity::kIdle, kMinute, Residence{0, 1});
  EXPECT_TRUE(engines.LetOneRest("asker", kHere.bytes, 2 * kMinute));
  EXPECT_TRUE(engines.Rests(0, 2 * kMinute));
}

TEST(IdleEnginesTest, OnlyEnginesWithAFloorLeaveForOne) {
  IdleEngines engines(EvictionPolicy::kLru,
                      {Rules("without"), Rules("with"), Rules("busy")});
  Residence with_floor = kHere;
  with_floor.floor_slabs = 3;
  engines.Saw(0, Activity::kIdle, 1, kHere);
  engines.Saw(1, Activity::kIdle, 2, with_floor);
  engines.Saw(2, Activity::kBusy, 1, with_floor);
  const auto leaves = [&](const Lack& lack) {
    return engines.WhoLeaves(RoomFor::kStart, "asker", lack, 3);
  };
  EXPECT_EQ(leaves(0), 0u) << "idle for longer";
  EXPECT_EQ(leaves(Lack::OfFloor(6)), 1u) << "the busy one rests then";
  EXPECT_EQ(leaves(Lack::OfFloor(7)), absl::nullopt) << "in vain";
}

// Nothing asked for room when the engine's memory came back.
TEST(IdleEnginesTest, EngineStaysForAWhileOnceItsMemoryIsBack) {
  IdleEngines engines(EvictionPolicy::kSlack, {Rules("a")});
  const Residence here = {1 << 30, kMinute}, away = {0, kMinute};
  engines.Saw(0, Activity::kIdle, kMinute, here);
  engines.Saw(0, Activity::kIdle, 30 * kMinute, away);
  engines.Saw(0, Activity::kIdle, 60 * kMinute, here);
  EXPECT_EQ(engines.WhoLeaves(RoomFor::kKv, "", 0, 69 * kMinute),
            absl::nullopt);
  EXPECT_EQ(engines.WhoLeaves(RoomFor::kKv, "", 0, 70 * kMinute), 0u);
}

// Each of three busy engines gives way in turn, under every policy.
TEST(IdleEnginesTest, BusyEnginesTakeTurns) {
  for (const EvictionPolicy policy :
       {EvictionPolicy::kSlack, EvictionPolicy::kLru, EvictionPolicy::kPrism}) {
    IdleEngines engines(policy, {Rules("a"), Rules("b"), Rules("c")});
    size_t away = 2;
    std::vector<size_t> left;
    for (Micros now = 60'000'000; left.size() < 6; now += 1'000'000) {
      for (size_t e = 0; e < 3; ++e) {
        engines.Saw(e,
                    engines.Rests(e, now) ? Activity::kIdle : Activity::kBusy,
                    now, Residence{e == away ? 0ULL : 1 << 30, 1'000'000});
      }
      const char* const asker = away == 0 ? "a" : away == 1 ? "b" : "c";
      const auto leaves = engines.WhoLeaves(RoomFor::kRequests, asker, 0, now);
      if (!leaves) engines.LetOneRest(asker, 0, now);
      if (!leaves) continue;
      left.push_back(*leaves);
      away = *leaves;
    }
    EXPECT_THAT(left, ElementsAre(0, 1, 2, 0, 1, 2));
  }
}

TEST(IdleEnginesTest, ReplicaDoesNotRestForTheOtherOne) {
  IdleEngines engines(EvictionPolicy::kSlack, {Rules("a"), Rules("b")});
  IdleEngines::Rules one = Rules("a"), two = Rules("b");
  two.model = one.model;
  IdleEngines replicas(EvictionPolicy::kSlack, {one, two});
  for (IdleEngines* e : {&engines, &replicas}) {
    e->Saw(0, Activity::kAway, kMinute, Residence{0, 1});
    e->Saw(1, Activity::kBusy, kMinute, kHere);
  }
  EXPECT_TRUE(engines.LetOneRest("a", 0, kMinute));
  EXPECT_FALSE(replicas.LetOneRest("a", 0, kMinute));
}

bool AnyMayCome(size_t engine) { return true; }

constexpr uint64_t kSize = 1 << 30;  // of each
constexpr Residence kOut = {0, 1000, kSize};

// Three engines are out; `often` is asked each minute, `rare` each hour.
class BringAheadTest : public ::testing::Test {
 protected:
  BringAheadTest() {
    for (int minute = 0; minute < 600; ++minute, now_ += kMinute) {
      Asked(0);
      if (minute % 60 == 0) Asked(1);
    }
    Asked(2);
    for (const size_t engine : {0u, 1u}) {
      engines_.LeavesForOthers(engine);
    }
    for (const size_t engine : {0u, 1u, 2u}) {
      engines_.Saw(engine, Activity::kIdle, now_, kOut);
    }
  }
  void Asked(size_t engine) {
    engines_.Saw(engine, Activity::kBusy, now_, kHere);
    engines_.Saw(engine, Activity::kIdle, now_ + 1, kHere);
  }
  absl::optional<size_t> Bring(uint64_t free_bytes) {
    const auto may_come = [this](size_t engine) { return engine != drained_; };
    return engines_.BringAhead(free_bytes, may_come, now_ + kMinute / 2);
  }

  IdleEngines engines_{EvictionPolicy::kSlack,
                       {Rules("often"), Rules("rare"), Rules("ordered")}};
  Micros now_ = 0;
  size_t drained_ = SIZE_MAX;
};

TEST_F(BringAheadTest, LikeliestEngineComesIfAsMuchAgainStaysFree) {
  EXPECT_EQ(Bring(2 * kSize - 1), absl::nullopt);
  EXPECT_EQ(Bring(2 * kSize), 0u);
}

TEST_F(BringAheadTest, EngineThatMayNotComeHoldsUpNoOther) {
  drained_ = 0;
  EXPECT_EQ(Bring(2 * kSize), 1u);
}

TEST_F(BringAheadTest, OperatorsEvictionLasts) {
  for (const size_t engine : {0u, 1u}) {
    engines_.Saw(engine, Activity::kIdle, now_, kHere);
  }
  EXPECT_EQ(Bring(9 * kSize), absl::nullopt);
}

TEST_F(BringAheadTest, EngineMayLeaveAgainAtOnceUntilItIsAsked) {
  ASSERT_EQ(Bring(2 * kSize), 0u);
  now_ += kMinute;
  engines_.Saw(0, Activity::kIdle, now_, kHere);
  const Micros soon = now_ + 1;
  EXPECT_EQ(engines_.WhoLeaves(RoomFor::kKv, "", 0, soon), 0u);
  Asked(0);
  engines_.Saw(0, Activity::kIdle, now_, kOut);
  Asked(0);
  EXPECT_EQ(engines_.WhoLeaves(RoomFor::kKv, "", 0, now_ + 2), absl::nullopt);
}

TEST_F(BringAheadTest, OtherPoliciesBringNoneAhead) {
  IdleEngines lru(EvictionPolicy::kLru,
                  {Rules("often"), Rules("rare"), Rules("ordered")});
  lru.GoOnFrom(engines_);
  EXPECT_EQ(lru.BringAhead(9 * kSize, AnyMayCome, now_), absl::nullopt);
}

TEST(IdleEnginesTest, BusyEngineRestsForAnotherGpuUnlessItHasJustCome) {
  IdleEngines engines(EvictionPolicy::kSlack, {Rules("a"), Rules("b")});
  const Micros stays = kStays * kHere.activation;
  for (const size_t e : {0u, 1u}) {
    engines.Saw(e, Activity::kAway, 1, Residence{0, 1000, kHere.bytes});
    engines.Saw(e, Activity::kBusy, 2, kHere);
  }
  EXPECT_FALSE(engines.LetRest(0, stays)) << "it has just come";
  EXPECT_TRUE(engines.LetRest(0, 2 + stays));
  EXPECT_EQ(engines.WhoRests(2 + stays), 0u);
  EXPECT_FALSE(engines.LetRest(1, 2 + stays)) << "one at a time";
  EXPECT_TRUE(engines.LetRest(0, 3 + stays));
  const Micros later = 3 + stays + IdleEngines::kRest;
  EXPECT_EQ(engines.WhoRests(later), absl::nullopt);
  engines.Saw(0, Activity::kIdle, later, kHere);
  EXPECT_TRUE(engines.IsIdle(0));
  EXPECT_FALSE(engines.LetRest(0, later)) << "it can leave";
}

TEST(IdleEnginesTest, EngineOnSeveralGpusDoesNotComeAhead) {
  IdleEngines engines(EvictionPolicy::kSlack, {Rules("wide")});
  engines.Saw(0, Activity::kIdle, 1, kHere);
  engines.LeavesForOthers(0);
  Residence away = {0, 1000, kHere.bytes};
  away.spans_gpus = true;
  engines.Saw(0, Activity::kIdle, 2, away);
  EXPECT_EQ(engines.BringAhead(8 * kHere.bytes, AnyMayCome, 3), absl::nullopt);
  away.spans_gpus = false;
  engines.Saw(0, Activity::kIdle, 4, away);
  EXPECT_EQ(engines.BringAhead(8 * kHere.bytes, AnyMayCome, 5), 0u);
}

}  // namespace
}  // namespace fineserve::evict

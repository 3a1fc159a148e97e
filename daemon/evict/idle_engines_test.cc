#include "daemon/evict/idle_engines.h"

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
  return {name, true, evict_after, kMinute};
}
absl::optional<Residence> Here(size_t) { return Residence{1 << 30, 1000}; }

TEST(IdleEnginesTest, NoneMayLeaveUnlessAnEngineSaysSo) {
  EXPECT_FALSE(IdleEngines(EvictionPolicy::kLru, {{"a"}}).any());
  EXPECT_TRUE(IdleEngines(EvictionPolicy::kLru, {{"a"}, Rules("b")}).any());
}

TEST(IdleEnginesTest, LeavesByItselfAfterItsTimeAndIsNamedOnceEachTime) {
  IdleEngines engines(EvictionPolicy::kSlack,
                      {Rules("a", kMinute), Rules("b")});
  for (const size_t engine : {0u, 1u}) engines.Saw(engine, Activity::kIdle, 1);
  EXPECT_THAT(engines.Due(kMinute), IsEmpty());
  EXPECT_THAT(engines.Due(kMinute + 1), ElementsAre(0));
  EXPECT_THAT(engines.Due(kMinute + 2), IsEmpty());
  EXPECT_THAT(engines.Due(2 * kMinute + 1), ElementsAre(0));
  engines.Saw(0, Activity::kBusy, 2 * kMinute + 2);
  EXPECT_THAT(engines.Due(9 * kMinute), IsEmpty());
}

// Both are idle for the same time.
TEST(IdleEnginesTest, RareModelLeavesBeforeOneThatIsAskedOften) {
  IdleEngines engines(EvictionPolicy::kSlack, {Rules("often"), Rules("rare")});
  Micros now = 0;
  for (int minute = 0; minute < 600; ++minute, now += kMinute) {
    engines.Saw(0, Activity::kBusy, now);
    engines.Saw(0, Activity::kIdle, now + 1);
    if (minute % 60 != 0) continue;
    engines.Saw(1, Activity::kBusy, now);
    engines.Saw(1, Activity::kIdle, now + 1);
  }
  for (const size_t e : {0u, 1u}) engines.Saw(e, Activity::kBusy, now);
  for (const size_t e : {0u, 1u}) engines.Saw(e, Activity::kIdle, now + 1);
  now += kMinute / 2;
  EXPECT_EQ(engines.WhoLeaves(RoomFor::kRequests, "", now, Here), 1u);
  IdleEngines next(EvictionPolicy::kSlack, {Rules("rare"), Rules("often")});
  next.GoOnFrom(engines);
  EXPECT_EQ(next.WhoLeaves(RoomFor::kRequests, "", now, Here), 0u);
}

TEST(IdleEnginesTest, NeitherAwayNorMovingNorTheAskerLeaves) {
  IdleEngines engines(EvictionPolicy::kLru,
                      {Rules("away"), Rules("moves"), Rules("asker")});
  for (const size_t e : {0u, 1u, 2u}) engines.Saw(e, Activity::kIdle, 1);
  const auto where = [](size_t engine) -> absl::optional<Residence> {
    if (engine == 1) return absl::nullopt;
    return Residence{engine == 0 ? 0ULL : 1, 1};
  };
  EXPECT_EQ(engines.WhoLeaves(RoomFor::kRequests, "asker", 2, where),
            absl::nullopt);
  EXPECT_FALSE(engines.LetOneRest("asker", 2, where)) << "none is busy";
}

// Each of three busy engines gives way in turn.
TEST(IdleEnginesTest, BusyEnginesTakeTurns) {
  IdleEngines engines(EvictionPolicy::kSlack,
                      {Rules("a"), Rules("b"), Rules("c")});
  size_t away = 2;
  const auto where = [&](size_t engine) -> absl::optional<Residence> {
    return Residence{engine == away ? 0ULL : 1 << 30, 1'000'000};
  };
  std::vector<size_t> left;
  for (Micros now = 60'000'000; left.size() < 6; now += 1'000'000) {
    for (size_t e = 0; e < 3; ++e) {
      engines.Saw(e, engines.Rests(e, now) ? Activity::kIdle : Activity::kBusy,
                  now);
    }
    const char* const asker = away == 0 ? "a" : away == 1 ? "b" : "c";
    const auto leaves =
        engines.WhoLeaves(RoomFor::kRequests, asker, now, where);
    if (!leaves) engines.LetOneRest(asker, now, where);
    if (!leaves) continue;
    left.push_back(*leaves);
    away = *leaves;
  }
  EXPECT_THAT(left, ElementsAre(0, 1, 2, 0, 1, 2));
}

}  // namespace
}  // namespace fineserve::evict

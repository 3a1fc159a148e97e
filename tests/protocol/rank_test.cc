// Engines on several GPUs leave them and come back while daemons and processes
// die and connections end, in random orders of events. No step runs without the
// memory of all its ranks, and in the end each engine is on one side.

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/protocol/rank_world.h"
#include "tests/protocol/walk.h"

namespace fineserve::protocol {
namespace {

#if defined(FINESERVE_SANITIZED)
constexpr uint32_t kRankWalks = 10;
#else
const uint32_t kRankWalks =
    getenv("FINESERVE_PROTOCOL_LONG") == nullptr ? 300 : 100'000;
#endif
constexpr uint32_t kRankEvents = 1'500;

// Makes walks until each kind of move that the options allow has happened.
void ExpectRanksSound(const RankOptions& options) {
  const bool may_undo = options.engines.size() > 1;
  uint64_t left = 0, returned = 0, steps = 0, undone = 0, let_go = 0;
  const auto is_enough = [&](const RankWorld& world) {
    left += world.left();
    returned += world.returned();
    steps += world.steps();
    undone += world.undone();
    let_go += world.let_go();
    return left != 0 && returned != 0 && steps != 0 &&
           (undone != 0 || !may_undo) && (let_go != 0 || !options.by_need);
  };
  // Walks with `by_need` end only when engines that could not leave may be
  // asked again.
  const uint32_t walks = options.by_need ? kRankWalks / 6 : kRankWalks;
  EXPECT_EQ(Walk<RankWorld>(options, kRankEvents, walks, is_enough), "");
}

TEST(RankProtocolTest, AllRanksLeaveAndComeBack) {
  ExpectRanksSound({});
  ExpectRanksSound({.engines = {{0, 1, 2}}});
}

// Each has what the other lacks.
TEST(RankProtocolTest, TwoThatWantEachOthersMemoryBothAnswer) {
  ExpectRanksSound({.engines = {{0, 1}, {1, 0}}, .room = 1});
}

TEST(RankProtocolTest, RingOfEnginesThatOverlapIsAnswered) {
  ExpectRanksSound({.engines = {{0, 1}, {1, 2}, {2, 0}}, .room = 1});
}

TEST(RankProtocolTest, DaemonsOfRanksDie) {
  ExpectRanksSound({.crashes = 4});
  ExpectRanksSound({.engines = {{0, 1}, {1, 0}}, .room = 1, .crashes = 4});
}

// A pool ends while a rank is out, while it comes back, or when it is back but
// its block pool is not.
TEST(RankProtocolTest, PoolsOfRanksEndWithTheirDaemons) {
  ExpectRanksSound({.crashes = 100, .loses_pools = true});
  ExpectRanksSound({.engines = {{0, 1}, {1, 2}, {2, 0}},
                    .room = 1,
                    .crashes = 4,
                    .deaths = 1,
                    .drops = 3,
                    .loses_pools = true});
  ExpectRanksSound({.engines = {{0, 1}, {1}},
                    .room = 1,
                    .crashes = 4,
                    .by_need = true,
                    .loses_pools = true});
}

TEST(RankProtocolTest, RanksAndBlockPoolsDie) {
  ExpectRanksSound({.engines = {{0, 1}, {1, 0}}, .room = 1, .deaths = 1});
}

TEST(RankProtocolTest, ConnectionsOfRanksEnd) {
  ExpectRanksSound({.drops = 4});
}

TEST(RankProtocolTest, AllOfItOnThreeGpus) {
  ExpectRanksSound({.engines = {{0, 1}, {1, 2}, {2, 0}},
                    .room = 1,
                    .crashes = 3,
                    .deaths = 1,
                    .drops = 3});
}

// The engine that is only on GPU 1 lacks the room that the other daemon's
// engine has there.
TEST(RankProtocolTest, RoomOnASecondGpuIsLeftByIdleEngines) {
  ExpectRanksSound({.engines = {{0, 1}, {1}}, .room = 1, .by_need = true});
  ExpectRanksSound(
      {.engines = {{0, 1}, {1, 0}, {1}}, .room = 1, .by_need = true});
}

TEST(RankProtocolTest, DaemonsDieWhileOneAsksTheOtherForRoom) {
  ExpectRanksSound(
      {.engines = {{0, 1}, {1}}, .room = 1, .crashes = 4, .by_need = true});
  ExpectRanksSound({.engines = {{0, 1}, {1, 2}, {2, 0}, {1}},
                    .room = 1,
                    .crashes = 3,
                    .deaths = 1,
                    .drops = 3,
                    .by_need = true});
}

// Expects that the checker finds a fault, because otherwise finding none would
// prove nothing.
void ExpectRankFault(const RankOptions& options, const std::string& what) {
  const std::string found = FirstFault<RankWorld>(options, kRankEvents);
  EXPECT_NE(found.find(what), std::string::npos) << found;
}

TEST(RankProtocolTest, RankThatLeavesBeforeItsBlockPoolIsFound) {
  ExpectRankFault({.drops = 4, .ranks_leave_alone = true},
                  "without the memory");
}

TEST(RankProtocolTest, BlockPoolThatGoesOnBeforeAllRanksIsFound) {
  ExpectRankFault({.pool_goes_on_alone = true}, "without the memory");
}

TEST(RankProtocolTest, BlockPoolThatLeavesInAStepIsFound) {
  ExpectRankFault({.pool_leaves_in_a_step = true}, "without the memory");
}

TEST(RankProtocolTest, BlockPoolThatAsksOnceForItsRanksIsFound) {
  ExpectRankFault({.crashes = 4, .rings_once = true, .keeps_needs = true},
                  "does not come back");
}

TEST(RankProtocolTest, RankThatStaysInALostPoolIsFound) {
  ExpectRankFault(
      {.crashes = 100, .loses_pools = true, .stays_in_lost_pools = true},
      "does not come back");
}

TEST(RankProtocolTest, RankThatKeepsThatItsRoomIsNeededIsFound) {
  ExpectRankFault({.engines = {{0, 1}, {1}},
                   .room = 1,
                   .by_need = true,
                   .keeps_room_needs = true},
                  "does not come back");
}

}  // namespace
}  // namespace fineserve::protocol

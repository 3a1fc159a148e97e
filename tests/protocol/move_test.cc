// Engines leave the GPU and come back while daemons and processes die and
// connections end, in random orders of events. No process may compute with data
// that it did not write, or lose its copy, and in the end everything must come
// to rest.

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/protocol/move_world.h"
#include "tests/protocol/walk.h"

namespace fineserve::protocol {
namespace {

#if defined(FINESERVE_SANITIZED)
constexpr uint32_t kMoveWalks = 10;
#else
const uint32_t kMoveWalks =
    getenv("FINESERVE_PROTOCOL_LONG") == nullptr ? 300 : 100'000;
#endif
constexpr uint32_t kMoveEvents = 1'500;

// Makes walks until each kind of move that the options allow has happened.
void ExpectMovesSound(const MoveOptions& options) {
  const bool may_lose = options.shares && options.deaths != 0;
  uint64_t left = 0, returned = 0, shared = 0, left_open = 0, lost = 0;
  const auto is_enough = [&](const MoveWorld& world) {
    left += world.left();
    returned += world.returned();
    shared += world.shared();
    left_open += world.left_open();
    lost += world.lost();
    return left != 0 && returned != 0 && shared != 0 &&
           (left_open != 0 || !options.shares) && (lost != 0 || !may_lose);
  };
  EXPECT_EQ(Walk<MoveWorld>(options, kMoveEvents, kMoveWalks, is_enough), "");
  EXPECT_EQ(left_open != 0, options.shares);
  EXPECT_EQ(lost != 0, may_lose);
}

TEST(MoveProtocolTest, EnginesLeaveAndComeBack) { ExpectMovesSound({}); }

TEST(MoveProtocolTest, ProcessesOfAnEngineMoveTogether) {
  ExpectMovesSound({.processes = {2, 1}});
}

TEST(MoveProtocolTest, GpuHasRoomForSomeOfThem) {
  ExpectMovesSound({.processes = {1, 1, 1}, .room = 3});
}

TEST(MoveProtocolTest, DaemonsDie) {
  ExpectMovesSound({.processes = {1, 1, 1}, .crashes = 3});
}

// Replicas share copies in the file of a daemon that has died.
TEST(MoveProtocolTest, DaemonsOfReplicasDie) {
  ExpectMovesSound(
      {.processes = {1, 1, 1}, .writes = 3, .crashes = 4, .stops = 1});
}

TEST(MoveProtocolTest, ProcessesDie) {
  ExpectMovesSound({.processes = {2, 1, 1}, .deaths = 2});
}

TEST(MoveProtocolTest, ConnectionsEnd) {
  ExpectMovesSound({.processes = {2, 1}, .drops = 3});
}

TEST(MoveProtocolTest, AllOfIt) {
  ExpectMovesSound({.processes = {2, 1, 1},
                    .room = 4,
                    .crashes = 2,
                    .deaths = 1,
                    .drops = 1});
}

// Two and three processes, each of which has another process's memory open.
TEST(MoveProtocolTest, MemorySharedWithinAnEngineLeavesWithIt) {
  ExpectMovesSound({.processes = {2, 3}, .shares = true});
}

TEST(MoveProtocolTest, ProcessesThatShareDie) {
  ExpectMovesSound({.processes = {2, 3}, .deaths = 2, .shares = true});
}

TEST(MoveProtocolTest, ProcessThatRestsStopsAndItsExporterDies) {
  ExpectMovesSound({.processes = {2},
                    .crashes = 3,
                    .deaths = 1,
                    .stops = 1,
                    .shares = true});
}

TEST(MoveProtocolTest, DaemonsOfProcessesThatShareDie) {
  ExpectMovesSound({.processes = {2, 2},
                    .crashes = 3,
                    .drops = 2,
                    .stops = 1,
                    .shares = true,
                    .silences = 4});
}

TEST(MoveProtocolTest, AllOfItWithProcessesThatShare) {
  ExpectMovesSound({.processes = {3, 2, 1},
                    .room = 5,
                    .crashes = 2,
                    .deaths = 2,
                    .drops = 2,
                    .stops = 1,
                    .shares = true,
                    .silences = 4});
}

// Expects that the checker finds a fault, because otherwise finding none would
// prove nothing.
void ExpectMoveFault(const MoveOptions& options, const std::string& what) {
  const std::string found = FirstFault<MoveWorld>(options, kMoveEvents);
  EXPECT_NE(found.find(what), std::string::npos) << found;
}

TEST(MoveProtocolTest, CopyThatCountsBeforeItsProcessHasLeftIsFound) {
  ExpectMoveFault(
      {.processes = {1, 1, 1}, .drops = 1, .commits_when_copied = true}, "cop");
}

TEST(MoveProtocolTest, CopyThatGoesWithItsConnectionIsFound) {
  ExpectMoveFault({.drops = 1, .forgets_with_connection = true},
                  "its copy is gone");
}

TEST(MoveProtocolTest, FormerConnectionThatIsReadLateIsFound) {
  ExpectMoveFault({.drops = 1, .hears_former_connections = true},
                  "its copy is gone");
}

TEST(MoveProtocolTest, CopyThatIsFreedBeforeAllHaveComeIsFound) {
  ExpectMoveFault({.processes = {1, 1, 1},
                   .writes = 3,
                   .crashes = 4,
                   .stops = 1,
                   .ignores_locks = true},
                  "its copy is gone");
}

TEST(MoveProtocolTest, CallThatAsksOnceForItsMemoryIsFound) {
  ExpectMoveFault({.room = 1, .rings_once = true}, "does not come back");
}

TEST(MoveProtocolTest, MemoryThatADeadDaemonStillFillsIsFound) {
  ExpectMoveFault({.crashes = 30, .fills_the_same_memory = true}, "what it ");
}

TEST(MoveProtocolTest, GateThatOpensEarlyIsFound) {
  ExpectMoveFault({.opens_early = true}, "did not write");
}

TEST(MoveProtocolTest, MemoryThatLeavesWhileAnotherMayWriteItIsFound) {
  ExpectMoveFault(
      {.processes = {2}, .drops = 3, .shares = true, .leaves_borrowers = true},
      "what ");
}

TEST(MoveProtocolTest, MappingThatIsKeptFromBeforeIsFound) {
  ExpectMoveFault(
      {.processes = {2}, .drops = 3, .shares = true, .keeps_old_mapping = true},
      "what ");
}

TEST(MoveProtocolTest, ProcessThatGoesOnWithoutWhatItHasOpenIsFound) {
  ExpectMoveFault(
      {.processes = {2}, .room = 1, .shares = true, .goes_on_without = true},
      "what ");
}

TEST(MoveProtocolTest, OldMappingOfADeadProcessIsFound) {
  ExpectMoveFault({.processes = {2},
                   .crashes = 3,
                   .deaths = 1,
                   .stops = 1,
                   .shares = true,
                   .trusts_the_dead = true},
                  "was another's");
}

TEST(MoveProtocolTest, SilenceThatIsTakenForRefusalIsFound) {
  ExpectMoveFault(
      {.processes = {2}, .shares = true, .silences = 4, .trusts_silence = true},
      "what ");
}

}  // namespace
}  // namespace fineserve::protocol

// Replicas drop their parameters, read each other's, restore them, leave the
// GPU and write them, while processes and daemons die, in random orders of
// events. No replica computes with parameters other than its own, and in the
// end each has what it was promised.

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/protocol/drop_world.h"
#include "tests/protocol/walk.h"

namespace fineserve::protocol {
namespace {

#if defined(FINESERVE_SANITIZED)
constexpr uint32_t kDropWalks = 10;
#else
const uint32_t kDropWalks =
    getenv("FINESERVE_PROTOCOL_LONG") == nullptr ? 300 : 100'000;
#endif
constexpr uint32_t kDropEvents = 1'500;

// Makes walks until each kind of event has happened.
void ExpectDropsSound(const DropOptions& options) {
  uint64_t dropped = 0, restored = 0, refused = 0, written = 0, left = 0;
  uint64_t ordered_drops = 0, ordered_restores = 0, mutual = 0;
  const auto is_enough = [&](const DropWorld& world) {
    dropped += world.dropped();
    restored += world.restored();
    refused += world.refused();
    written += world.written();
    left += world.left();
    ordered_drops += world.ordered_drops();
    ordered_restores += world.ordered_restores();
    mutual += world.mutual();
    const bool orders = ordered_drops != 0 && ordered_restores != 0;
    return orders == options.has_policy && dropped != 0 && restored != 0 &&
           refused != 0 && written != 0 && left != 0 && mutual != 0;
  };
  EXPECT_EQ(Walk<DropWorld>(options, kDropEvents, kDropWalks, is_enough), "");
}

TEST(DropProtocolTest, ReplicasDropAndRestore) { ExpectDropsSound({}); }

TEST(DropProtocolTest, DaemonsDie) { ExpectDropsSound({.crashes = 50}); }

TEST(DropProtocolTest, ReplicasDie) { ExpectDropsSound({.deaths = 50}); }

TEST(DropProtocolTest, ConnectionsEndAndProcessesAreSilent) {
  ExpectDropsSound({.drops = 50, .silences = 50});
}

TEST(DropProtocolTest, GpuHasNoRoomForAWhile) {
  ExpectDropsSound({.deaths = 20, .shortages = 50});
}

TEST(DropProtocolTest, AllOfIt) {
  ExpectDropsSound({.crashes = 20,
                    .deaths = 20,
                    .drops = 20,
                    .silences = 20,
                    .shortages = 20});
}

TEST(DropProtocolTest, PolicyOrders) {
  ExpectDropsSound({.has_operator = false, .has_policy = true});
}

TEST(DropProtocolTest, PolicyAndOperatorOrder) {
  ExpectDropsSound({.has_policy = true});
}

TEST(DropProtocolTest, PolicyOrdersWhateverDies) {
  ExpectDropsSound({.crashes = 20,
                    .deaths = 20,
                    .drops = 20,
                    .silences = 20,
                    .shortages = 20,
                    .has_policy = true});
}

// Expects that the checker finds a fault, because otherwise finding none would
// prove nothing. One fault has several consequences, of which `what` is soon
// the first.
void ExpectDropFault(const DropOptions& options, const std::string& what) {
  std::string found;
  for (int i = 0; i < 20 && found.find(what) == std::string::npos; ++i) {
    found = FirstFault<DropWorld>(options, kDropEvents);
  }
  EXPECT_NE(found.find(what), std::string::npos) << found;
}

TEST(DropProtocolTest, DropOnBothSidesIsFound) {
  ExpectDropFault({.drops_on_both_sides = true}, "dropped on both sides");
}

TEST(DropProtocolTest, MappingBeforeTheGateIsClosedIsFound) {
  ExpectDropFault({.maps_before_the_gate = true}, "from under a step");
}

TEST(DropProtocolTest, WriteToWhatIsReadIsFound) {
  ExpectDropFault({.writes_while_read = true}, "that it did not write");
}

TEST(DropProtocolTest, DropOfUnequalParametersIsFound) {
  ExpectDropFault({.compares_nothing = true}, "that it did not write");
}

TEST(DropProtocolTest, LenderThatLeavesWithWhatIsReadIsFound) {
  ExpectDropFault({.leaves_readers = true}, "no longer the other's");
}

TEST(DropProtocolTest, LendersEndThatIsMissedIsFound) {
  ExpectDropFault({.deaths = 50, .misses_the_end = true},
                  "restore does not come");
}

TEST(DropProtocolTest, EndOfReadingThatIsSaidOnceIsFound) {
  ExpectDropFault({.silences = 50, .says_once = true}, "replica");
}

TEST(DropProtocolTest, DropOnBothSidesByThePolicyIsFound) {
  ExpectDropFault(
      {.drops_on_both_sides = true, .has_operator = false, .has_policy = true},
      "dropped on both sides");
}

TEST(DropProtocolTest, RestorationThatIsOrderedOnceIsFound) {
  ExpectDropFault({.shortages = 50, .has_policy = true, .restores_once = true},
                  "does not get its parameters back");
}

}  // namespace
}  // namespace fineserve::protocol

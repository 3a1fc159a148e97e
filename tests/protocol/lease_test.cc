// Leases of whole slabs while daemons and processes die: every order of events
// of small instances, with a death of the daemon after each single write and
// answer. No lease may be lost, granted twice, or taken from its process.

#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/protocol/explorer.h"
#include "tests/protocol/lease_world.h"

namespace fineserve::protocol {
namespace {

ExplorationOf<LeaseWorld> ExploreLeases(const LeaseOptions& options,
                                        uint64_t most_states) {
  return Explorer<LeaseWorld>(options, most_states).Run();
}

void ExpectLeasesSound(const LeaseOptions& options) {
  const auto found = ExploreLeases(options, MostStates());
  EXPECT_EQ(found.violation, "") << "after: " << LeaseWorld::Text(found.path);
  EXPECT_TRUE(found.complete || found.states >= MostStates());
  printf("%llu states, %llu transitions, %llu settled\n",
         static_cast<unsigned long long>(found.states),
         static_cast<unsigned long long>(found.transitions),
         static_cast<unsigned long long>(found.settled));
}

TEST(LeaseProtocolTest, EveryOrderOfALeaseEachAndOneDeathOfTheDaemonIsSound) {
  ExpectLeasesSound({});
}

// A connection is closed while its daemon lives, and opened again.
TEST(LeaseProtocolTest, EveryOrderWithALostConnectionIsSound) {
  LeaseOptions options;
  options.drops = 1;
  ExpectLeasesSound(options);
}

TEST(LeaseProtocolTest, EveryOrderWithADeathOfAProcessIsSound) {
  LeaseOptions options;
  options.deaths = 1;
  ExpectLeasesSound(options);
}

TEST(LeaseProtocolTest, EveryOrderOfALongerStoryIsSound) {
  if (getenv("FINESERVE_PROTOCOL_LONG") == nullptr) {
    GTEST_SKIP() << "takes minutes; set FINESERVE_PROTOCOL_LONG=1";
  }
  LeaseOptions options;
  options.crashes = 2;
  ExpectLeasesSound(options);
  options.crashes = 1;
  options.drops = 1;
  options.deaths = 1;
  ExpectLeasesSound(options);
}

#if !defined(FINESERVE_SANITIZED)

// Expects that the checker finds a fault, because otherwise finding none would
// prove nothing.
void ExpectFound(const LeaseOptions& options, const std::string& what) {
  const auto found = ExploreLeases(options, kEveryState);
  EXPECT_NE(found.violation.find(what), std::string::npos) << found.violation;
}

// An engine of an older release still loses its lease.
TEST(LeaseProtocolTest, RequestWithoutANumberLosesItsLease) {
  LeaseOptions options;
  options.no_number = true;
  ExpectFound(options, "is lost");
}

TEST(LeaseProtocolTest, AskerThatIsNotPublishedIsFound) {
  LeaseOptions options;
  options.no_asker = true;
  ExpectFound(options, "is lost");
}

TEST(LeaseProtocolTest, AskerThatIsPublishedAfterTheWordIsFound) {
  LeaseOptions options;
  options.word_first = true;
  ExpectFound(options, "is lost");
}

TEST(LeaseProtocolTest, RequestThatIsGivenUpSilentlyIsFound) {
  LeaseOptions options;
  options.no_giving_up = true;
  ExpectFound(options, "is lost");
}

TEST(LeaseProtocolTest, RequestThatIsReadAfterItWasGivenUpIsFound) {
  LeaseOptions options;
  options.drops = 1;
  options.forgets_given_up = true;
  ExpectFound(options, "is lost");
}

TEST(LeaseProtocolTest, EndOfAFormerConnectionThatTakesALeaseIsFound) {
  LeaseOptions options;
  options.drops = 1;
  options.repeats_after_drop = true;
  options.former_connection_returns = true;
  ExpectFound(options, "though its process holds it");
}

TEST(LeaseProtocolTest, LeaseThatIsSeenTooLateIsFound) {
  LeaseOptions options;
  options.deaths = 1;
  options.seen_late = true;
  ExpectFound(options, "were zeroed at once");
}

#endif

}  // namespace
}  // namespace fineserve::protocol

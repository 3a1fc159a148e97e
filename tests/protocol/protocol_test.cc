// Slabs move from engine to engine while steps are in flight and processes die:
// every order of events of a small instance, and random orders of a larger one.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <random>
#include <vector>

#include "tests/protocol/explorer.h"
#include "tests/protocol/world.h"

namespace fineserve::protocol {
namespace {

using Exploration = ExplorationOf<World>;

void Settle(World* world, const std::vector<Event>& path, Exploration* found) {
  ++found->settled;
  found->violation = world->Settle();
  if (!found->violation.empty()) found->path = path;
}

// Runs random events, which the seed determines.
Exploration Walk(const Options& options, uint32_t seed, uint32_t events) {
  std::mt19937 random(seed);
  Exploration found;
  World world(options);
  std::vector<Event> path;
  for (uint32_t i = 0; i < events; ++i) {
    const std::vector<Event> enabled = world.Enabled();
    if (enabled.empty()) break;
    path.push_back(enabled[random() % enabled.size()]);
    world.Apply(path.back());
    ++found.transitions;
    if (!world.violation().empty()) {
      found.violation = world.violation();
      found.path = path;
      return found;
    }
  }
  Settle(&world, path, &found);
  return found;
}

// Tries every order of events from the start of a world, with each state once
// and at most `most_states` states. Worlds cannot be copied, so a state is
// reached again by repeating the events that led to it. A run continues from
// there until it meets only known states.
Exploration Explore(const Options& options, uint64_t most_states) {
  return Explorer<World>(options, most_states).Run();
}

#if defined(FINESERVE_SANITIZED)
constexpr uint32_t kWalks = 30;
#else
constexpr uint32_t kWalks = 3'000;
#endif

using ProtocolTest = ::testing::Test;

void ExpectSound(const Options& options) {
  const Exploration found = Explore(options, MostStates());
  EXPECT_EQ(found.violation, "") << "after: " << Text(found.path);
  EXPECT_TRUE(found.complete || found.states >= MostStates());
  printf("%llu states, %llu transitions, %llu settled\n",
         static_cast<unsigned long long>(found.states),
         static_cast<unsigned long long>(found.transitions),
         static_cast<unsigned long long>(found.settled));
}

TEST_F(ProtocolTest, EveryOrderOfAStepEachAndOneDeathIsSound) {
  ExpectSound(Options{});
}

TEST_F(ProtocolTest, EveryOrderOfStepsThatOverlapIsSound) {
  Options options;
  options.steps = {2, 0};
  options.deaths = 0;
  ExpectSound(options);
}

// Each engine may sleep once and wake up.
TEST_F(ProtocolTest, EveryOrderOfAStepAndASleepEachIsSound) {
  Options options;
  options.suspensions = 1;
  options.changes = 0;
  ExpectSound(options);
}

// One engine begins a step, the other wants more, and the daemon dies once,
// after any of its actions. Another daemon takes over.
Options OneCrash() {
  Options options;
  options.deaths = 0;
  options.crashes = 1;
  options.steps = {1, 0};
  options.waits = 0;
  return options;
}

TEST_F(ProtocolTest, EveryOrderOfAStepAndOneDeathOfTheDaemonIsSound) {
  ExpectSound(OneCrash());
}

// The second daemon dies while it takes over.
TEST_F(ProtocolTest, EveryOrderOfTwoDeathsOfDaemonsIsSound) {
  Options options = OneCrash();
  options.crashes = 2;
  ExpectSound(options);
}

TEST_F(ProtocolTest, EveryOrderOfDeathsOfAnEngineAndTheDaemonIsSound) {
  Options options;
  options.crashes = 1;
  options.changes = 0;
  options.waits = 0;
  ExpectSound(options);
}

// A program replaces an engine and keeps its pid while the engine's steps are
// in flight. Once the program has a context, the driver lists that pid for
// good.
Options OneExec() {
  Options options;
  options.execs = true;
  options.changes = 0;
  return options;
}

TEST_F(ProtocolTest, EveryOrderOfAProgramThatReplacesAnEngineIsSound) {
  ExpectSound(OneExec());
}

TEST_F(ProtocolTest, EveryOrderOfSuchAProgramAndADeathOfTheDaemonIsSound) {
  Options options = OneExec();
  options.crashes = 1;
  options.waits = 0;
  ExpectSound(options);
}

// Explores about a million states, so it is run when the protocol has changed,
// not every day.
TEST_F(ProtocolTest, EveryOrderOfALongerStoryIsSound) {
  if (getenv("FINESERVE_PROTOCOL_LONG") == nullptr) {
    GTEST_SKIP() << "takes minutes; set FINESERVE_PROTOCOL_LONG=1";
  }
  Options options;
  options.steps = {2, 1};
  ExpectSound(options);
  options.steps = {1, 1};
  options.deaths = 0;
  options.crashes = 1;
  ExpectSound(options);
}

TEST_F(ProtocolTest, RandomOrdersOfALargerInstanceAreSound) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Options options;
  options.slabs = 5;
  options.steps = {40, 40};
  options.changes = 20;
  options.waits = 20;
  options.suspensions = 5;
  options.crashes = 6;
  uint64_t events = 0;
  for (uint32_t i = 0; i < kWalks; ++i) {
    options.deaths = i % 3;
    options.execs = i % 2 == 1;
    const Exploration found = Walk(options, seed + i, 400);
    ASSERT_EQ(found.violation, "")
        << "walk " << seed + i << ": " << Text(found.path);
    events += found.transitions;
  }
  printf("%u walks, %llu events\n", kWalks,
         static_cast<unsigned long long>(events));
}

// Expects that the checker finds a fault in time, because otherwise finding
// none would prove nothing.
#if !defined(FINESERVE_SANITIZED)

TEST_F(ProtocolTest, WithoutTheStepFenceAWriteIntoAnothersSlabIsFound) {
  Options options;
  options.no_fence = true;
  options.deaths = 0;
  const Exploration found = Explore(options, kEveryState);
  EXPECT_NE(found.violation.find("(alive) wrote slab"), std::string::npos)
      << found.violation;
}

TEST_F(ProtocolTest, WithoutQuarantineADeadEnginesWriteIsFound) {
  Options options;
  options.no_quarantine = true;
  const Exploration found = Explore(options, kEveryState);
  EXPECT_NE(found.violation.find("(dead) wrote slab"), std::string::npos)
      << found.violation;
}

TEST_F(ProtocolTest, EngineThatSleepsWithAStepInFlightIsFoundWriting) {
  Options options;
  options.suspensions = 1;
  options.no_synchronize = true;
  options.deaths = 0;
  const Exploration found = Explore(options, kEveryState);
  EXPECT_NE(found.violation.find("(alive) wrote slab"), std::string::npos)
      << found.violation;
}

TEST_F(ProtocolTest, WithoutZeroingBytesOfTheFormerTenantAreFound) {
  Options options;
  options.no_zero = true;
  const Exploration found = Explore(options, kEveryState);
  EXPECT_NE(found.violation.find("another's bytes"), std::string::npos)
      << found.violation;
}

// The daemons' own faults.
void ExpectFound(const Options& options, const std::string& what) {
  const Exploration found = Explore(options, kEveryState);
  EXPECT_NE(found.violation.find(what), std::string::npos) << found.violation;
}

TEST_F(ProtocolTest, FillOfAFormerDaemonIsFoundWhereItIsNotWaitedFor) {
  Options options = OneCrash();
  options.no_former_daemon = true;
  ExpectFound(options, "a daemon that has ended zeroed slab");
}

TEST_F(ProtocolTest, DaemonThatForgetsItsPredecessorsPredecessorIsFound) {
  Options options = OneCrash();
  options.crashes = 2;
  options.named_first = true;
  ExpectFound(options, "a daemon that has ended zeroed slab");
}

TEST_F(ProtocolTest, WithoutMeetingTheMembersALostSlabIsFound) {
  Options options = OneCrash();
  options.deaths = 1;
  options.changes = 0;
  options.no_meeting = true;
  ExpectFound(options, "is lost");
}

TEST_F(ProtocolTest, ProgramThatMakesItsContextAtOnceIsFoundToLoseSlabs) {
  Options options = OneExec();
  options.no_waiting_start = true;
  ExpectFound(options, "is lost");
}

TEST_F(ProtocolTest, ZeroingWhatIsOnlyAskedBackIsFound) {
  Options options = OneCrash();
  options.takes_asked_back = true;
  ExpectFound(options, "has no lease");
}

TEST_F(ProtocolTest, ReturnThatIsNotRepeatedIsFound) {
  Options options = OneCrash();
  options.no_repeating = true;
  ExpectFound(options, "is lost");
}

#endif

}  // namespace
}  // namespace fineserve::protocol

// Engines that span GPUs trade slabs with others on some of those GPUs while
// steps are in flight and processes die: random orders of events, by which no
// slab may be written that is another's, and after which all must come to rest.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <random>

#include "tests/protocol/group_world.h"

namespace fineserve::protocol {
namespace {

#if defined(FINESERVE_SANITIZED)
constexpr uint32_t kGroupWalks = 20;
#else
const uint32_t kGroupWalks =
    getenv("FINESERVE_PROTOCOL_LONG") == nullptr ? 400 : 40'000;
#endif
constexpr uint32_t kEvents = 600;

// Counts of events in some walks.
struct Sums {
  uint64_t used = 0;
  uint64_t returned = 0;
  uint64_t successions = 0;
  uint64_t refused_successors = 0;
};

// Description of the first error that some walks found, or "".
std::string Walk(const GroupOptions& options, uint32_t walks, Sums* sums) {
  const uint32_t seed = std::random_device{}();
  for (uint32_t i = 0; i < walks; ++i) {
    std::mt19937 random(seed + i);
    GroupWorld world(options);
    for (uint32_t n = 0; n < kEvents && world.violation().empty(); ++n) {
      world.Happen(static_cast<uint32_t>(random()));
    }
    const std::string wrong =
        world.violation().empty() ? world.Settle() : world.violation();
    sums->used += world.slabs_used();
    sums->returned += world.slabs_returned();
    sums->successions += world.successions();
    sums->refused_successors += world.refused_successors();
    if (!wrong.empty())
      return "seed " + std::to_string(seed + i) + ": " + wrong;
  }
  return "";
}

void ExpectSound(const GroupOptions& options) {
  Sums sums;
  EXPECT_EQ(Walk(options, kGroupWalks, &sums), "");
  EXPECT_GT(sums.used, kGroupWalks);
  if (options.deaths == 0) {
    EXPECT_GT(sums.returned, kGroupWalks / 20);
  }
  if (options.successors) {
    EXPECT_GT(sums.successions, 0u);
    EXPECT_GT(sums.refused_successors, 0u);
  }
  printf("%llu slabs used in steps, %llu returned, %llu successors\n",
         static_cast<unsigned long long>(sums.used),
         static_cast<unsigned long long>(sums.returned),
         static_cast<unsigned long long>(sums.successions));
}

TEST(GroupProtocolTest, TwoGpusAndAnEngineOnEach) {
  ExpectSound({{6, 4}, {{0, 1}, {0}, {1}}});
}

TEST(GroupProtocolTest, GroupsThatOverlapInARing) {
  ExpectSound({{5, 5, 5}, {{0, 1}, {1, 2}, {2, 0}}});
}

TEST(GroupProtocolTest, TwoGroupsOnTheSameFourGpus) {
  ExpectSound({{4, 5, 6, 7}, {{0, 1, 2, 3}, {3, 2, 1, 0}, {2}}});
}

TEST(GroupProtocolTest, ProcessesDieAtAnyInstant) {
  ExpectSound({{6, 4}, {{0, 1}, {1, 0}, {1}}, /*deaths=*/3});
}

TEST(GroupProtocolTest, BlockPoolsDieAndOtherProcessesRunThem) {
  GroupOptions options = {{6, 4}, {{0, 1}, {1, 0}, {1}}, /*deaths=*/4};
  options.successors = true;
  ExpectSound(options);
}

#if !defined(FINESERVE_SANITIZED)

constexpr uint32_t kSabotageWalks = 20'000;  // until the fault is found

std::string FirstFault(const GroupOptions& options) {
  Sums sums;
  return Walk(options, kSabotageWalks, &sums);
}

TEST(GroupProtocolTest, AFenceOfOneRankOnlyIsFound) {
  GroupOptions options = {{6, 4}, {{0, 1}, {0}, {1}}};
  options.fence_of_rank_0 = true;
  EXPECT_NE(FirstFault(options).find("wrote slab"), std::string::npos);
}

TEST(GroupProtocolTest, ALeaseOfOneRankOnlyIsFound) {
  GroupOptions options = {{6, 4}, {{0, 1}, {0}, {1}}};
  options.lease_of_rank_0 = true;
  const std::string found = FirstFault(options);
  // Begun with, or written by a step of before.
  EXPECT_TRUE(found.find("has not leased to it") != std::string::npos ||
              found.find("wrote slab") != std::string::npos)
      << found;
}

// It finds leases that it knows nothing of and returns them.
TEST(GroupProtocolTest, ASuccessorTakenForItsPredecessorIsFound) {
  GroupOptions options = {{6, 4}, {{0, 1}, {1, 0}, {1}}, /*deaths=*/4};
  options.successors = options.successor_is_predecessor = true;
  EXPECT_NE(FirstFault(options).find("wrote slab"), std::string::npos);
}

// Engines would hold parts of each other's slabs for ever.
TEST(GroupProtocolTest, WaitingWithoutEndIsFound) {
  GroupOptions options = {{4, 5, 6, 7}, {{0, 1, 2, 3}, {3, 2, 1, 0}, {2}}};
  options.no_patience = true;
  EXPECT_NE(FirstFault(options), "");
}

#endif

}  // namespace
}  // namespace fineserve::protocol

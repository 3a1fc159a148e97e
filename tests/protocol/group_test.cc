// Engines that span GPUs trade slabs with others on some of those GPUs while
// steps are in flight and processes die, in random orders of events. No engine
// may write another's slab, and in the end everything must come to rest.

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/protocol/group_world.h"
#include "tests/protocol/walk.h"

namespace fineserve::protocol {
namespace {

#if defined(FINESERVE_SANITIZED)
constexpr uint32_t kGroupWalks = 20;
#else
const uint32_t kGroupWalks =
    getenv("FINESERVE_PROTOCOL_LONG") == nullptr ? 400 : 40'000;
#endif
constexpr uint32_t kEvents = 600;

// Makes walks until slabs were used, returned and inherited as far as the
// options allow.
void ExpectSound(const GroupOptions& options) {
  uint64_t used = 0, returned = 0, successions = 0, refused_successors = 0;
  uint64_t grown_used = 0;
  const auto is_enough = [&](const GroupWorld& world) {
    used += world.slabs_used();
    returned += world.slabs_returned();
    successions += world.successions();
    refused_successors += world.refused_successors();
    grown_used += world.grown_used();
    return used != 0 && (returned != 0 || options.deaths != 0) &&
           (grown_used != 0 || options.resizes == 0) &&
           ((successions != 0 && refused_successors != 0) ||
            !options.successors);
  };
  EXPECT_EQ(Walk<GroupWorld>(options, kEvents, kGroupWalks, is_enough), "");
  printf(
      "%llu slabs used in steps, %llu of them with memory by which a pool had "
      "grown; %llu returned, %llu successors\n",
      static_cast<unsigned long long>(used),
      static_cast<unsigned long long>(grown_used),
      static_cast<unsigned long long>(returned),
      static_cast<unsigned long long>(successions));
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

TEST(GroupProtocolTest, PoolsShrinkAndGrow) {
  GroupOptions options = {{8, 7}, {{0, 1}, {1, 0}, {1}}, /*deaths=*/2};
  options.resizes = 12;
  ExpectSound(options);
}

#if !defined(FINESERVE_SANITIZED)

std::string FirstFault(const GroupOptions& options) {
  return FirstFault<GroupWorld>(options, kEvents);
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
  // A step began with such a slab, or an earlier step wrote it.
  EXPECT_TRUE(found.find("has not leased to it") != std::string::npos ||
              found.find("wrote slab") != std::string::npos)
      << found;
}

// The successor finds leases that it does not know, and returns them.
TEST(GroupProtocolTest, ASuccessorTakenForItsPredecessorIsFound) {
  GroupOptions options = {{6, 4}, {{0, 1}, {1, 0}, {1}}, /*deaths=*/4};
  options.successors = options.successor_is_predecessor = true;
  EXPECT_NE(FirstFault(options).find("wrote slab"), std::string::npos);
}

TEST(GroupProtocolTest, MemoryThatIsShownBeforeItIsMappedIsFound) {
  GroupOptions options = {{8, 7}, {{0, 1}, {0}, {1}}};
  options.resizes = 12;
  options.shows_too_early = true;
  EXPECT_NE(FirstFault(options).find("has not mapped"), std::string::npos);
}

// Otherwise engines would hold parts of each other's slabs forever.
TEST(GroupProtocolTest, WaitingWithoutEndIsFound) {
  GroupOptions options = {{4, 5, 6, 7}, {{0, 1, 2, 3}, {3, 2, 1, 0}, {2}}};
  options.no_patience = true;
  EXPECT_NE(FirstFault(options), "");
}

#endif

}  // namespace
}  // namespace fineserve::protocol

#include "daemon/fineserved/pool_service/pool_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "daemon/contract/abi/engine_entry.h"
#include "daemon/fineserved/pool_service/pool_fixture.h"

namespace fineserve::server {
namespace {

using slab::EngineId;
using slab::LeaseId;
using ::testing::HasSubstr;

class PoolServiceTest : public PoolFixture {
 protected:
  PoolServiceTest() : PoolFixture({4096, 2, kSlabs}) {}

  LeaseId LeaseNow(EngineId engine, uint32_t slabs) {
    pool_.Lease(engine, slabs, ++ticket_);
    return pool_.TakeAnswers().grants.at(0).lease;
  }
  void PollAfterPidCheck() {
    clock_.AdvanceNs(slab::PoolState::kListNs);
    Poll();
  }
  abi::EngineRecord Entry(uint32_t slot) {
    abi::EngineRecord record;
    const auto& entry = reinterpret_cast<const abi::EngineEntry*>(
        static_cast<char*>(base_) + sizeof(abi::TableHeader))[slot];
    EXPECT_TRUE(abi::CopyRecord(entry, &record));
    return record;
  }

  uint64_t ticket_ = 0;
};

TEST_F(PoolServiceTest, MembersOfOneNameFormOneEngine) {
  const EngineId a = Join("a", 10);
  EXPECT_EQ(Join("a", 11), a);
  EXPECT_NE(Join("b", 12), a);
  EXPECT_EQ(Entry(0).member_count, 2u);
}

TEST_F(PoolServiceTest, SameNameOfAnotherUserIsAnotherEngine) {
  const EngineId a = Join("a", 10);
  EXPECT_NE(*pool_.Join("a", kUser + 1, 11), a);
}

TEST_F(PoolServiceTest, EngineLivesWhileOneMemberLives) {
  const EngineId a = Join("a", 10);
  Join("a", 11);
  LeaseNow(a, 3);
  pool_.Exited(10);
  EXPECT_FALSE(pool_.state().quarantining());
  EXPECT_EQ(pool_.slabs().HeldBy(a).slabs, 3u);
  pool_.Exited(11);
  EXPECT_TRUE(pool_.state().quarantining());
}

TEST_F(PoolServiceTest, DeadEnginesSlabsWaitUntilTheDriverListsNoMember) {
  const EngineId a = Join("a", 10);
  Join("a", 11);
  LeaseNow(a, 3);
  backing_.set_device_pids(std::vector<pid_t>{10, 99});
  pool_.Exited(10);
  pool_.Exited(11);
  PollAfterPidCheck();
  EXPECT_EQ(pool_.slabs().free_count(), 5u);
  EXPECT_EQ(Entry(0).state, abi::EngineState::kQuarantined);
  EXPECT_EQ(Entry(0).slabs_held, 3u);
  backing_.set_device_pids(std::vector<pid_t>{99});
  PollAfterPidCheck();
  Poll();
  EXPECT_EQ(pool_.slabs().free_count(), 8u);
  EXPECT_EQ(Entry(0).state, abi::EngineState::kUnused);
}

TEST_F(PoolServiceTest, WithoutTheDriversWordSlabsStayQuarantined) {
  const EngineId a = Join("a", 10);
  LeaseNow(a, 2);
  backing_.set_device_pids(absl::UnavailableError("no NVML"));
  pool_.Exited(10);
  for (int i = 0; i < 100; ++i) PollAfterPidCheck();
  EXPECT_EQ(pool_.slabs().free_count(), 6u);
}

TEST_F(PoolServiceTest, NewEngineOfADeadOnesNameIsAnotherEngine) {
  const EngineId a = Join("a", 10);
  LeaseNow(a, 1);
  backing_.set_device_pids(std::vector<pid_t>{10});
  pool_.Exited(10);
  EXPECT_NE(Join("a", 11), a);
}

TEST_F(PoolServiceTest, EngineWithoutSlabsLeavesAtOnce) {
  Join("a", 10);
  pool_.Exited(10);
  EXPECT_EQ(Entry(0).state, abi::EngineState::kUnused);
}

TEST_F(PoolServiceTest, ReleasedSlabsAreZeroedBeforeTheyAreFree) {
  const EngineId a = Join("a", 10);
  LeaseNow(a, 8);
  pool_.Exited(10);
  backing_.set_zeroing_completes(false);
  PollAfterPidCheck();
  EXPECT_EQ(backing_.zeroing_count(), 8u);
  EXPECT_EQ(pool_.slabs().free_count(), 0u);
  backing_.set_zeroing_completes(true);
  Poll();
  EXPECT_EQ(pool_.slabs().free_count(), 8u);
}

TEST_F(PoolServiceTest, RequestThatWaitsForZeroingIsGrantedByPoll) {
  const EngineId a = Join("a", 10);
  const EngineId b = Join("b", 11);
  const LeaseId lease = LeaseNow(a, 8);
  backing_.set_zeroing_completes(false);
  ASSERT_TRUE(pool_.machine()->Return(a, lease).ok());
  pool_.Lease(b, 4, 77);
  Poll();
  const auto waiting = pool_.TakeAnswers();
  EXPECT_TRUE(waiting.grants.empty() && waiting.refusals.empty());
  backing_.set_zeroing_completes(true);
  Poll();
  const auto grants = pool_.TakeAnswers().grants;
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].ticket, 77u);
}

TEST_F(PoolServiceTest, GranulesAreExportedSlabBySlabToTheirOwnerOnly) {
  const EngineId a = Join("a", 10);
  const EngineId b = Join("b", 11);
  const LeaseId lease = LeaseNow(a, 2);  // 2 slabs of 2 granules
  const slab::PoolState& state = pool_.state();
  EXPECT_EQ(state.GranulesOf(a, lease, 3, 9)->size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(state.GranulesOf(a, lease, 4, 1).status()));
  EXPECT_TRUE(absl::IsNotFound(state.GranulesOf(b, lease, 0, 1).status()));
  pool_.Export(7, *state.GranulesOf(a, lease, 0, 4));
  Poll();
  const auto exports = pool_.TakeAnswers().exports;
  ASSERT_EQ(exports.size(), 1u);
  EXPECT_EQ(exports[0].ticket, 7u);
  EXPECT_EQ(exports[0].granules.size(), 4u);
}

TEST_F(PoolServiceTest, HoldersAreNamedWithTheirState) {
  LeaseNow(Join("a", 10), 2);
  LeaseNow(Join("b", 11), 3);
  backing_.set_device_pids(std::vector<pid_t>{11});
  pool_.Exited(11);
  EXPECT_EQ(pool_.state().DescribeHolders(),
            "engine 1 (a) 2 slabs, engine 2 (b, dead) 3 slabs");
}

TEST_F(PoolServiceTest, EngineTableFullIsRefusedByName) {
  // One slot is kept for the next daemon.
  for (uint32_t i = 0; i + 1 < abi::kEngineCapacity; ++i) {
    Join(std::to_string(i), static_cast<pid_t>(100 + i));
  }
  const auto refused = pool_.Join("one more", kUser, 9);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("63 engines"));
}

}  // namespace
}  // namespace fineserve::server

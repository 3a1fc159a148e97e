// Tests that the next daemon continues with a pool as the pool's table
// describes it.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/pool/pool_state.h"
#include "daemon/pool/table_writer.h"

namespace fineserve::slab {
namespace {

using abi::SlabState;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint32_t kSlabs = 16;
constexpr pid_t kNext = 77'000'000;  // no process has it

// A pool that a machine decides about and a table describes, as PoolService
// keeps them; fills complete when the test says so.
class PoolAdoptionTest : public ::testing::Test {
 protected:
  PoolAdoptionTest() {
    TableIdentity identity;
    identity.epoch = 5;
    identity.geometry = pool_.geometry();
    table_ = *TableWriter::Create(identity, &clock_);
    Execute();
  }
  void TearDown() override { pool_.slabs().CheckInvariants(); }

  void Execute() {
    for (Effects e = pool_.TakeEffects(); !e.empty(); e = pool_.TakeEffects()) {
      table_->SetMarks(pool_.last_engine(), pool_.slabs().last_lease(),
                       pool_.wanted_slabs());
      for (const SlabChange& change : e.changes) {
        table_->SetSlab(change.slab, change.word, change.asker);
      }
      for (uint32_t slot : e.vacant) table_->ClearEngine(slot);
      for (EngineId id : e.records) {
        table_->SetEngine(pool_.SlotOf(id), pool_.Record(id));
      }
      filling_.insert(filling_.end(), e.fill.begin(), e.fill.end());
      for (SlabId slab : e.make) pool_.Made(slab);
      for (const auto& grant : e.grants) grants_.push_back(grant);
    }
  }
  void Fill() {
    for (SlabId slab : std::exchange(filling_, {})) pool_.Zeroed(slab);
    Execute();
  }
  void Settle() {
    pool_.Settle(clock_.NowNs(), [](EngineId, SlabId) { return 0; });
    Execute();
  }
  abi::TableSnapshot Kept() { return *abi::ReadTable(table_->descriptor()); }
  // Lets the daemon die while its fills are under way, and another daemon take
  // over.
  void TakeOver() {
    Adopt();
    pool_.HoldBackFills();
    Execute();
  }
  void Adopt() {
    absl::StatusOr<PoolState> next = PoolState::Adopt(Kept(), clock_.NowNs());
    ASSERT_TRUE(next.ok()) << next.status();
    pool_ = *std::move(next);
    table_ =
        *TableWriter::Adopt(driver::Descriptor(fcntl(table_->kept_descriptor(),
                                                     F_DUPFD_CLOEXEC, 0)),
                            &clock_);
    filling_.clear();
    Execute();
    table_->Serve();
  }

  EngineId Join(const std::string& name, pid_t pid) {
    const EngineId id = *pool_.Join(name, 0, pid, clock_.NowNs(), 1000 + pid);
    Execute();
    return id;
  }
  static ViewSpec Spec() {
    return {abi::ViewMode::kView, {4, 1024, 16}, /*floor_blocks=*/4, 0};
  }
  EngineId Serve(const std::string& name, pid_t pid, uint32_t wanted) {
    const EngineId id = Join(name, pid);
    EXPECT_TRUE(pool_.RegisterView(id, pid, Spec(), {}).ok());
    EXPECT_TRUE(
        pool_.ActivateView(id, pid, kSlabs, wanted, clock_.NowNs()).ok());
    Settle();
    return id;
  }
  LeaseId Lease(EngineId id, uint32_t slabs, const Asker& asker = {}) {
    pool_.Lease(id, slabs, ++ticket_, clock_.NowNs(), asker);
    Execute();
    return grants_.back().lease;
  }
  std::string Words() {
    std::string text;
    for (SlabId slab : FirstSlabs(kSlabs)) {
      const abi::SlabWord word = pool_.slabs().word(slab);
      absl::StrAppend(&text, static_cast<int>(word.state), ":", word.engine,
                      ":", word.lease, " ");
    }
    return text;
  }

  ManualClock clock_;
  PoolState pool_{{1024, 4, kSlabs}, kSlabs};
  std::unique_ptr<TableWriter> table_;
  std::vector<SlabId> filling_;
  std::vector<SlabManager::Grant> grants_;
  uint64_t ticket_ = 0;
};

TEST_F(PoolAdoptionTest, SlabsOfEnginesStayAndAreTheirsToReturn) {
  Fill();
  const EngineId whole = Join("whole", 10);
  const LeaseId lease = Lease(whole, 3);
  const EngineId a = Serve("a", 20, 10);
  const EngineId b = Serve("b", 30, 10);  // so that some are asked back
  ASSERT_TRUE(pool_.SetLimit(a, 7).ok());
  Settle();
  ASSERT_GT(pool_.slabs().HeldBy(a).returning, 0u);
  const std::string words = Words();
  const abi::EngineRecord record = pool_.Record(a);
  TakeOver();
  EXPECT_EQ(Words(), words);
  const abi::EngineRecord now = pool_.Record(a);
  EXPECT_EQ(memcmp(&now, &record, sizeof(now)), 0);
  EXPECT_EQ(now.limit, 7u);
  EXPECT_EQ(Kept().daemons, 2u);
  EXPECT_EQ(Kept().epoch, 5u);
  // Each slab is held by its own lease, and no lease number is used twice.
  EXPECT_TRUE(pool_.Return(whole, lease).ok());
  for (const auto& [slab, held] : pool_.slabs().InView(a)) {
    if (pool_.slabs().word(slab).state != SlabState::kReturning) continue;
    EXPECT_TRUE(pool_.ReturnSlab(a, 20, slab, held).ok());
  }
  Execute();
  Fill();
  Settle();
  EXPECT_GT(pool_.slabs().HeldBy(b).in_view, 5u);
  for (const auto& [slab, held] : pool_.slabs().InView(b)) {
    EXPECT_GT(Number(held), 0u);
  }
  EXPECT_GT(Number(Join("new", 40)), Number(b));
}

TEST_F(PoolAdoptionTest, LeaseWhoseAnswerWasLostIsGrantedAgainOrGivenUp) {
  Fill();
  const EngineId a = Join("a", 20);
  const LeaseId lost = Lease(a, 3, {20, 7});
  const LeaseId given_up = Lease(a, 2, {20, 8});
  const LeaseId seen = Lease(a, 1, {20, 9});
  pool_.Seen(a, seen);
  Execute();
  TakeOver();
  const uint64_t granted = pool_.counters().leases_granted;
  EXPECT_EQ(Lease(a, 3, {20, 7}), lost);
  EXPECT_EQ(grants_.back().ticket, ticket_);
  EXPECT_THAT(grants_.back().slabs, SizeIs(3));
  EXPECT_EQ(pool_.counters().leases_granted, granted);
  EXPECT_TRUE(pool_.GiveUp(a, {20, 8}).ok());
  EXPECT_TRUE(absl::IsNotFound(pool_.GiveUp(a, {20, 8})));
  EXPECT_THAT(pool_.slabs().SlabsOf(a, given_up), SizeIs(0));
  // GiveUp finds no lease that is mapped, that was asked for without a number,
  // or that another process asked for.
  EXPECT_TRUE(absl::IsNotFound(pool_.GiveUp(a, {20, 9})));
  EXPECT_TRUE(absl::IsNotFound(pool_.GiveUp(a, {20, 0})));
  EXPECT_TRUE(absl::IsNotFound(pool_.GiveUp(a, {21, 7})));
  Execute();
  Fill();
  EXPECT_NE(Lease(a, 1, {20, 9}), seen);
}

TEST_F(PoolAdoptionTest, PartOfALeaseIsReturnedWhenItIsAskedForAgain) {
  Fill();
  const EngineId a = Join("a", 20);
  const LeaseId lease = Lease(a, 3, {20, 7});
  // Acts as if the daemon had died before it published the third slab.
  table_->SetSlab(grants_.back().slabs[2], {});
  TakeOver();
  EXPECT_NE(Lease(a, 3, {20, 7}), lease);
  EXPECT_THAT(grants_.back().slabs, SizeIs(3));
  EXPECT_EQ(pool_.slabs().HeldBy(a).slabs, 3u);
}

TEST_F(PoolAdoptionTest,
       SlabThatADeadProcessNeverSawServesTheOthersOfItsEngine) {
  Fill();
  const EngineId a = Join("a", 20);
  Join("a", 21);
  Lease(a, 3, {20, 7});
  const LeaseId seen = Lease(a, 1, {20, 8});
  pool_.Seen(a, seen);
  Execute();
  TakeOver();
  pool_.Exited(20, clock_.NowNs());
  Execute();
  EXPECT_EQ(pool_.slabs().HeldBy(a).slabs, 1u);
}

// A program may replace a member while there is no daemon.
TEST_F(PoolAdoptionTest, NextDaemonKnowsWhichProgramsTheMembersRan) {
  Fill();
  const auto image = [](uint64_t pid) { return pid << 40 | (1000 + pid); };
  for (pid_t pid = 20; pid < 20 + 16; ++pid) {
    ASSERT_TRUE(pool_.Join("a", 0, pid, 0, image(pid)).ok());
    ASSERT_TRUE(pid >= 28 || pool_.Join("b", 0, pid, 0, image(pid)).ok());
  }
  Execute();
  TakeOver();
  std::map<pid_t, std::vector<uint64_t>> images;
  for (const PoolState::Member& member : pool_.Members()) {
    images[member.pid].push_back(member.image);
  }
  for (pid_t pid = 20; pid < 20 + 16; ++pid) {
    // With sixteen members the table has room for their start times only.
    const uint64_t start = 1000 + static_cast<uint64_t>(pid);
    EXPECT_EQ(images[pid].front(), start);
    EXPECT_EQ(images[pid].back(), pid < 28 ? image(pid) : start);
  }
}

TEST_F(PoolAdoptionTest, ProcessThatJoinsAgainIsTheSameEngine) {
  Fill();
  const EngineId a = Serve("a", 20, 4);
  TakeOver();
  ASSERT_THAT(pool_.Members(), SizeIs(1));
  EXPECT_EQ(pool_.Members()[0].pid, 20);
  EXPECT_EQ(pool_.Members()[0].image, 1020u);
  EXPECT_EQ(Join("a", 20), a);
  EXPECT_TRUE(pool_.Want(a, 20, 6, clock_.NowNs()));
  Settle();
  EXPECT_EQ(pool_.slabs().HeldBy(a).in_view, 6u);
}

TEST_F(PoolAdoptionTest, SlabBeingZeroedWaitsForTheFormerDaemonsEnd) {
  const auto former = static_cast<pid_t>(getpid());
  TakeOver();
  EXPECT_EQ(pool_.slabs().count(SlabState::kQuarantined), kSlabs);
  EXPECT_TRUE(pool_.restless());
  EXPECT_TRUE(pool_.Listed({kNext, former}, kNext));
  Execute();
  EXPECT_TRUE(filling_.empty());
  EXPECT_TRUE(pool_.Listed({kNext}, kNext));
  Execute();
  EXPECT_THAT(filling_, SizeIs(kSlabs));
  Fill();
  EXPECT_EQ(pool_.slabs().free_count(), kSlabs);
  EXPECT_TRUE(Kept().engines.empty());
}

// The third daemon waits for the first one, too, wherever the second one died.
TEST_F(PoolAdoptionTest, FormerDaemonsOfTheFormerDaemonAreWaitedForToo) {
  for (bool held_back : {false, true}) {
    Adopt();
    if (held_back) pool_.HoldBackFills();
    Execute();
    // Gives the daemon that ended first a pid other than this process's.
    const abi::EngineSnapshot waits = Kept().engines.at(0);
    abi::EngineRecord record = pool_.Record(EngineId{waits.id});
    record.exited_count = 1;
    record.exited_pids[0] = 4711;
    table_->SetEngine(waits.slot, record);
    TakeOver();
    EXPECT_TRUE(pool_.Listed({kNext, 4711}, kNext));
    Execute();
    EXPECT_EQ(pool_.slabs().count(SlabState::kQuarantined), kSlabs);
    EXPECT_TRUE(filling_.empty());
    EXPECT_TRUE(pool_.Listed({kNext}, kNext));
    Execute();
    EXPECT_THAT(filling_, SizeIs(kSlabs));
    filling_.clear();
  }
}

// The table can be taken over however many daemons die while they zero slabs.
TEST_F(PoolAdoptionTest, TableFullOfEnginesIsTakenOverAgainAndAgain) {
  Fill();
  const EngineId a = Join("a", 10);
  const std::vector<LeaseId> leases = {Lease(a, 1), Lease(a, 1), Lease(a, 1)};
  for (pid_t pid = 100; pool_.Join(absl::StrCat("e", pid), 0, pid, 0).ok();) {
    ++pid;
  }
  Execute();
  EXPECT_THAT(Kept().engines, SizeIs(abi::kEngineCapacity - 1));
  for (uint32_t i = 0; i < leases.size(); ++i) {
    EXPECT_TRUE(pool_.Return(a, leases[i]).ok());
    Execute();
    TakeOver();
    EXPECT_THAT(Kept().engines, SizeIs(abi::kEngineCapacity));
    EXPECT_EQ(pool_.slabs().count(SlabState::kQuarantined), i + 1);
  }
  EXPECT_TRUE(pool_.Listed({kNext}, kNext));
  Execute();
  EXPECT_THAT(filling_, SizeIs(leases.size()));
  EXPECT_THAT(Kept().engines, SizeIs(abi::kEngineCapacity - 1));
}

TEST_F(PoolAdoptionTest, MemberThatExitedUnderTheFormerDaemonIsWaitedFor) {
  Fill();
  const EngineId a = Join("a", 10);
  Join("a", 11);
  Lease(a, 2);
  pool_.Exited(10, 0);
  Execute();
  TakeOver();
  pool_.Exited(11, 0);
  Execute();
  EXPECT_TRUE(pool_.Listed({kNext, 10}, kNext));
  EXPECT_EQ(pool_.slabs().count(SlabState::kQuarantined), 2u);
  EXPECT_TRUE(pool_.Listed({kNext}, kNext));
  EXPECT_EQ(pool_.slabs().count(SlabState::kQuarantined), 0u);
}

TEST_F(PoolAdoptionTest, EngineThatDiedUnseenMayHaveDiedOfABadPage) {
  Fill();
  Lease(Join("a", 10), 2);
  EXPECT_FALSE(pool_.HasErred(0, clock_.NowNs()));
  TakeOver();
  pool_.Exited(10, 0);
  Execute();
  EXPECT_TRUE(pool_.HasErred(1, clock_.NowNs()));
  EXPECT_TRUE(pool_.Listed({kNext}, kNext));
  EXPECT_EQ(pool_.slabs().absent_count(), 2u);
}

TEST_F(PoolAdoptionTest, QuarantineOfAnEngineWithTooManyDeadMembersStays) {
  Fill();
  const EngineId a = Join("a", 10);
  Lease(a, 2);
  for (pid_t pid = 100; pid < 100 + 17; ++pid) {
    Join("a", pid);
    pool_.Exited(pid, 0);
    Execute();
  }
  TakeOver();
  pool_.Exited(10, 0);
  EXPECT_TRUE(pool_.Listed({kNext}, kNext));
  EXPECT_EQ(pool_.slabs().count(SlabState::kQuarantined), 2u);
}

TEST_F(PoolAdoptionTest, DeadEngineStaysDead) {
  Fill();
  const EngineId a = Join("a", 10);
  Lease(a, 2);
  pool_.Exited(10, 0);
  Execute();
  TakeOver();
  EXPECT_TRUE(pool_.quarantining());
  EXPECT_NE(Join("a", 12), a);
  EXPECT_TRUE(pool_.Listed({kNext, 10}, kNext));
  EXPECT_EQ(pool_.slabs().count(SlabState::kQuarantined), 2u);
  EXPECT_TRUE(pool_.Listed({kNext}, kNext));
  EXPECT_EQ(pool_.slabs().count(SlabState::kQuarantined), 0u);
}

TEST_F(PoolAdoptionTest, ViewThatSleepsOrWasOnlyRegisteredIsTakenOver) {
  Fill();
  const EngineId asleep = Serve("a", 20, 4);
  ASSERT_TRUE(pool_.SuspendView(asleep, 20).ok());
  const EngineId early = Join("b", 30);
  ASSERT_TRUE(pool_.RegisterView(early, 30, Spec(), {}).ok());
  Execute();
  Fill();
  TakeOver();
  EXPECT_TRUE(pool_.IsSuspended(asleep));
  EXPECT_TRUE(pool_.RegisterView(asleep, 20, Spec(), {}).ok());
  EXPECT_TRUE(pool_.RegisterView(early, 30, Spec(), {}).ok());
  EXPECT_TRUE(pool_.ActivateView(early, 30, kSlabs, 6, clock_.NowNs()).ok());
  Settle();
  EXPECT_EQ(pool_.slabs().HeldBy(early).in_view, 6u);
}

TEST_F(PoolAdoptionTest, ResizeGoesOn) {
  Fill();
  ASSERT_TRUE(pool_.Resize(10).ok());
  Settle();
  TakeOver();
  EXPECT_EQ(pool_.wanted_slabs(), 10u);
  EXPECT_EQ(pool_.PresentSlabs().size(), pool_.present_slabs());
}

TEST_F(PoolAdoptionTest, MemoryThatOtherDevicesKnowStays) {
  const EngineId a = Join("a", 10);
  ViewSpec spec = Spec();
  spec.registered = true;
  Fill();
  ASSERT_TRUE(pool_.RegisterView(a, 10, spec, {}).ok());
  EXPECT_TRUE(pool_.ActivateView(a, 10, kSlabs, 2, clock_.NowNs()).ok());
  Settle();
  TakeOver();
  EXPECT_FALSE(pool_.Resize(10).ok());
}

TEST_F(PoolAdoptionTest, TableThatContradictsItselfIsNotTakenOver) {
  Fill();
  const EngineId a = Join("a", 10);
  Lease(a, 2);
  const abi::TableSnapshot sound = Kept();
  const auto broken = [&](auto change) {
    abi::TableSnapshot kept = sound;
    change(&kept);
    const auto adopted = PoolState::Adopt(kept, 0);
    EXPECT_TRUE(absl::IsDataLoss(adopted.status())) << adopted.status();
    return std::string(adopted.status().message());
  };
  EXPECT_THAT(broken([](auto* k) { k->engines.clear(); }),
              HasSubstr("slab 0 is held by engine 1, which is not listed"));
  EXPECT_THAT(broken([](auto* k) { k->last_lease = 0; }),
              HasSubstr("lease 1 of 0"));
  EXPECT_THAT(broken([](auto* k) { k->last_engine = 0; }),
              HasSubstr("engine 1 of 0"));
  EXPECT_THAT(broken([](auto* k) { k->torn_engines = 1; }),
              HasSubstr("half-written"));
  EXPECT_THAT(broken([](auto* k) { k->wanted_slabs = 17; }),
              HasSubstr("17 slabs of 16"));
  EXPECT_THAT(broken([](auto* k) { k->slabs[0].word.lease = 0; }),
              HasSubstr("slab 0 has an engine or a lease"));
}

}  // namespace
}  // namespace fineserve::slab

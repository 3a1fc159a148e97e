#include "daemon/pool/pool_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "daemon/contract/abi/view_messages.h"
#include "daemon/pool/pool_state_fixture.h"

namespace fineserve::slab {
namespace {

using abi::SlabState;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An engine that spans GPUs: process 7 is its rank here, and 1007 runs its
// blocks.
TEST_F(PoolStateTest, OneProcessRunsTheBlocksOfAnEngineOnSeveralGpus) {
  const EngineId id = JoinOnly(7);
  ViewSpec spec = Spec(1);
  spec.group = true;
  ASSERT_TRUE(pool_.RegisterView(id, 7, spec, {}).ok());
  EXPECT_FALSE(pool_.RunPool(id, 1007).ok()) << "it is not active";
  ASSERT_TRUE(pool_.ActivateView(id, 7, kSlabs, 1, now_ns_).ok());
  EXPECT_FALSE(pool_.Want(id, 7, 5, now_ns_)) << "a rank wants nothing";
  ASSERT_TRUE(pool_.Join("e7", 0, 1007, now_ns_).ok());
  EXPECT_TRUE(pool_.RunPool(id, 1007).ok());
  EXPECT_TRUE(pool_.RunPool(id, 1007).ok()) << "after another connection";
  EXPECT_THAT(std::string(pool_.RunPool(id, 1008).message()),
              HasSubstr("pid 1007 runs the block pool"));
  EXPECT_TRUE(pool_.Want(id, 1007, 5, now_ns_));
  pool_.Exited(1007, now_ns_);
  EXPECT_FALSE(pool_.Want(id, 1007, 5, now_ns_));
  EXPECT_TRUE(pool_.RunPool(id, 1008).ok());
  const EngineId other = Serve(20, 1);
  EXPECT_THAT(std::string(pool_.RunPool(other, 20).message()),
              HasSubstr("several GPUs"));
}

TEST_F(PoolStateTest, ARankMayRunTheBlocksAndItsSlabsWaitForItsEnd) {
  const EngineId id = JoinOnly(7);
  ViewSpec spec = Spec(1);
  spec.group = true;
  ASSERT_TRUE(pool_.RegisterView(id, 7, spec, {}).ok());
  ASSERT_TRUE(pool_.ActivateView(id, 7, kSlabs, 1, now_ns_).ok());
  ASSERT_TRUE(pool_.Join("e7", 0, 7, now_ns_).ok()) << "its second connection";
  ASSERT_TRUE(pool_.RunPool(id, 7).ok());
  wished_ = {SlabId{3}};
  EXPECT_TRUE(pool_.Want(id, 7, 1, now_ns_));
  Settle();
  ASSERT_EQ(pool_.slabs().HeldBy(id).in_view, 1u);
  pool_.Exited(7, now_ns_);
  EXPECT_EQ(pool_.counters().slabs_quarantined, 1u);
}

// The slabs that are free here are in use on the engine's other GPUs.
TEST_F(PoolStateTest, PoolIsTightForAnEngineThatCanUseNoneOfItsFreeSlabs) {
  const EngineId id = ServeOnSeveralGpus();
  pool_.Want(id, 1007, 4, now_ns_);
  Settle();
  EXPECT_FALSE(pool_.tight()) << "its wishes may be under way";
  Wait(2'000'000'000);
  Settle();
  EXPECT_TRUE(pool_.tight());
  for (uint32_t i = 0; i < 4; ++i) wished_.insert(SlabId{i});
  Settle();
  EXPECT_EQ(pool_.slabs().HeldBy(id).in_view, 4u);
  Settle();
  EXPECT_FALSE(pool_.tight());
}

// The ranks may have steps in flight, of which the successor knows nothing.
TEST_F(PoolStateTest, SuccessorIsRefusedWhileItsPredecessorsSlabsAreThere) {
  const EngineId id = ServeOnSeveralGpus();
  wished_ = {SlabId{3}};
  pool_.Want(id, 1007, 1, now_ns_);
  Settle();
  ASSERT_EQ(pool_.slabs().HeldBy(id).in_view, 1u);
  EXPECT_TRUE(pool_.RunPool(id, 1007).ok()) << "after another connection";
  pool_.Exited(1007, now_ns_);
  wished_ = {SlabId{5}};
  Settle();
  EXPECT_EQ(pool_.slabs().HeldBy(id).in_view, 1u) << "nothing for a dead pool";
  ASSERT_TRUE(pool_.Join("e7", 0, 1008, now_ns_).ok());
  EXPECT_THAT(std::string(pool_.RunPool(id, 1008).message()),
              HasSubstr("left 1 slabs"));
}

TEST_F(PoolStateTest,
       AnEngineOnSeveralGpusGetsWhatItWishesForAndIsOfferedMore) {
  const EngineId whole = Serve(20, kSlabs);
  const EngineId id = ServeOnSeveralGpus();
  Settle();
  EXPECT_EQ(pool_.Record(id).view.offer, kSlabs / 2);
  EXPECT_EQ(pool_.slabs().HeldBy(whole).returning, 0u) << "it wishes for none";
  wished_ = {SlabId{3}, SlabId{5}};
  pool_.Want(id, 1007, 2, now_ns_);
  Settle();
  EXPECT_EQ(pool_.slabs().word(SlabId{3}).state, SlabState::kReturning);
  EXPECT_EQ(pool_.slabs().word(SlabId{5}).state, SlabState::kReturning);
  EXPECT_EQ(pool_.slabs().HeldBy(whole).returning, 2u);
}

TEST_F(PoolStateTest, ReturnedSlabGoesToTheEngineThatWaits) {
  const EngineId a = Serve(10, kSlabs);
  Use(a, 1);
  const EngineId b = Serve(20, kSlabs);
  for (int i = 0; i < 50; ++i) {
    Wait(PoolState::kPatienceNs);
    Settle();
  }
  EXPECT_EQ(InView(b), 0u) << "nothing can be returned yet";
  EXPECT_EQ(Returning(a), kSlabs - 1) << "all but its floor was asked for";
  const uint64_t before = Moves();
  for (const auto& [slab, lease] : pool_.slabs().InView(a)) {
    if (pool_.slabs().word(slab).state == SlabState::kReturning) {
      used_[slab] = 0;
      break;
    }
  }
  EXPECT_EQ(ReturnDrained(a), 1u);
  Settle();
  EXPECT_EQ(InView(b), 1u);
  EXPECT_EQ(InView(a), kSlabs - 1);
  for (int i = 0; i < 50; ++i) {
    Wait(PoolState::kPatienceNs);
    Use(b, 1);
    Settle();
  }
  EXPECT_EQ(Moves(), before + 1) << "a slab went to and fro";
}

// Two engines want everything, and blocks live longer than any engine waits.
// The slabs beyond its share that the first engine was asked for are late, but
// it is not asked for others, because it would lose what the second engine
// wins.
TEST_F(PoolStateTest,
       EngineThatLacksSlabsIsNotAskedForOthersInsteadOfLateOnes) {
  const EngineId a = Serve(10, kSlabs - 2);
  const EngineId b = Serve(20, 2);
  Use(a, 1);
  Use(b, 1);
  ASSERT_EQ(InView(a), kSlabs - 2);
  for (int i = 0; i < 50; ++i) {
    Wait(PoolState::kPatienceNs);
    Want(a, kSlabs);
    Want(b, kSlabs);
    EXPECT_EQ(Returning(a), kSlabs / 2 - 2);
  }
  Wait(PoolState::kPatienceNs);
  Want(b, kSlabs);
  EXPECT_EQ(Returning(a), kSlabs - 4) << "it has not asked for a while";
}

TEST_F(PoolStateTest, ShareOfTwoThatWantEverythingComesToRest) {
  const EngineId a = Serve(10, kSlabs);
  Use(a, 1);
  const EngineId b = Serve(20, kSlabs);
  for (int i = 0; i < 10; ++i) {
    Wait(PoolState::kPatienceNs);
    Settle();
  }
  Rest({a, b}, {a, b});
  EXPECT_EQ(InView(a), kSlabs / 2);
  EXPECT_EQ(InView(b), kSlabs / 2);
}

// The pool is work conserving: an engine that once wanted much and uses nothing
// keeps only its floor while another waits.
TEST_F(PoolStateTest, IdleEngineKeepsNoSlabThatAnotherWaitsFor) {
  const EngineId idle = Serve(10, kSlabs, /*floor_slabs=*/2);
  const EngineId busy = Serve(20, kSlabs);
  Rest({idle, busy}, {idle, busy});
  ASSERT_EQ(InView(busy), kSlabs / 2 - 1) << "what the floors leave is halved";
  Use(idle, 0);
  Rest({idle, busy}, {busy});
  EXPECT_EQ(InView(idle), 2u);
  EXPECT_EQ(InView(busy), kSlabs - 2);
  // The idle engine wakes up, uses what it has, and gets its share again.
  Use(idle, 4);
  Settle();
  EXPECT_EQ(Returning(busy), kSlabs / 2 - 1);
}

TEST_F(PoolStateTest, SlabLeasedJustNowIsNotIdleYet) {
  const EngineId a = Serve(10, kSlabs);
  Use(a, 1);
  const EngineId b = Serve(20, kSlabs);
  used_.clear();
  ReturnDrained(a);
  Use(a, 1);
  Settle();
  ASSERT_EQ(InView(b), kSlabs / 2);
  Wait(PoolState::kPatienceNs - 1);
  Starve(a);
  Settle();
  EXPECT_EQ(Returning(b), 0u);
  Wait(1);
  Settle();
  EXPECT_EQ(Returning(b), kSlabs / 2 - 1) << "but its floor";
}

// --- Floors ---

// The answer to the first registration may have been lost.
TEST_F(PoolStateTest, RegisteringAgainCountsTheFloorOnce) {
  const EngineId id = JoinOnly(10);
  const EngineId other = JoinOnly(11);
  EXPECT_TRUE(pool_.RegisterView(id, 10, Spec(9), {}).ok());
  EXPECT_EQ(pool_.LackFor(id, Spec(9), {}), 0u);
  EXPECT_EQ(pool_.LackFor(other, Spec(9), {}), 2u);
  EXPECT_TRUE(pool_.RegisterView(id, 10, Spec(9), {}).ok());
  EXPECT_FALSE(pool_.RegisterView(id, 10, Spec(17), {}).ok());
  // A refused call has changed nothing.
  EXPECT_FALSE(pool_.RegisterView(other, 11, Spec(8), {}).ok());
  EXPECT_TRUE(pool_.RegisterView(other, 11, Spec(7), {}).ok());
}

TEST_F(PoolStateTest, FloorIsNotPromisedFromWhatIsLeasedWhole) {
  const EngineId whole = JoinOnly(30);
  pool_.Lease(whole, 10, 1, now_ns_);
  const EngineId a = JoinOnly(10);
  const absl::Status s = pool_.RegisterView(a, 10, Spec(7), {});
  EXPECT_TRUE(absl::IsResourceExhausted(s)) << s;
  EXPECT_THAT(std::string(s.message()), HasSubstr("10 are"));
  EXPECT_TRUE(pool_.RegisterView(a, 10, Spec(6), {}).ok());
}

TEST_F(PoolStateTest, WholeLeaseLeavesFloorsThatAreNotLeasedYet) {
  const EngineId a = JoinOnly(10);
  ASSERT_TRUE(pool_.RegisterView(a, 10, Spec(6), {}).ok());
  const EngineId whole = JoinOnly(30);
  pool_.Lease(whole, 11, 1, now_ns_);
  Execute();
  ASSERT_EQ(refusals_.size(), 1u);
  EXPECT_EQ(refusals_[0].available, 10u);
  pool_.Lease(whole, 10, 2, now_ns_);
  Execute();
  EXPECT_EQ(grants_.size(), 1u);
  ASSERT_TRUE(pool_.ActivateView(a, 10, kSlabs, kSlabs, now_ns_).ok());
  Settle();
  EXPECT_EQ(InView(a), 6u);
}

TEST_F(PoolStateTest, PoolDoesNotShrinkBelowFloorsAndWholeLeases) {
  Serve(10, 0, /*floor_slabs=*/4);
  const EngineId whole = JoinOnly(30);
  pool_.Lease(whole, 5, 1, now_ns_);
  const absl::Status s = pool_.Resize(8);
  EXPECT_TRUE(absl::IsInvalidArgument(s));
  EXPECT_THAT(std::string(s.message()), HasSubstr("9 are"));
  EXPECT_TRUE(pool_.Resize(9).ok());
}

TEST_F(PoolStateTest, PoolKeepsTheSlabsThatOtherDevicesKnow) {
  const EngineId id = JoinOnly(10);
  ViewSpec spec = Spec(1);
  spec.registered = true;
  ASSERT_TRUE(pool_.Resize(9).ok());
  EXPECT_THAT(std::string(pool_.RegisterView(id, 10, spec, {}).message()),
              HasSubstr("slabs have no memory"))
      << "the pool is about to shrink";
  ASSERT_TRUE(pool_.Resize(kSlabs).ok());
  ASSERT_TRUE(pool_.RegisterView(id, 10, spec, {}).ok());
  EXPECT_THAT(std::string(pool_.Resize(9).message()),
              HasSubstr("known to other devices"));
  EXPECT_EQ(pool_.GivableFor(JoinOnly(11)), 0u);
  EXPECT_EQ(pool_.Record(id).view.flags, abi::kViewIsRegistered);
  pool_.Exited(10, now_ns_);
  EXPECT_TRUE(pool_.Resize(9).ok());
}

TEST_F(PoolStateTest, ShrinkingWaitsForTheSlabsOfADeadEngine) {
  const EngineId dead = JoinOnly(30);
  pool_.Lease(dead, 10, 1, now_ns_);
  pool_.Exited(30, now_ns_);
  Serve(10, 0, /*floor_slabs=*/4);
  ASSERT_TRUE(pool_.Resize(5).ok());
  for (int i = 0; i < 5; ++i) Settle();
  EXPECT_EQ(pool_.present_slabs(), 14u) << "the floor is kept beside the dead";
  EXPECT_TRUE(pool_.Listed({kDaemon}, kDaemon));
  Execute();
  for (int i = 0; i < 5; ++i) Settle();
  EXPECT_EQ(pool_.present_slabs(), 5u);
}

TEST_F(PoolStateTest, DriverIsAskedAtOnceWhenAMemberExits) {
  for (pid_t pid : {30, 31}) {
    pool_.Lease(JoinOnly(pid), 2, static_cast<uint64_t>(pid), now_ns_);
    Execute();
  }
  for (pid_t pid : {30, 31}) {
    pool_.Exited(pid, now_ns_);
    asked_driver_ = false;
    Settle();
    EXPECT_TRUE(asked_driver_);
    EXPECT_TRUE(pool_.Listed({kDaemon, pid}, kDaemon));
    asked_driver_ = false;
    Settle();
    EXPECT_FALSE(asked_driver_) << "not again before a pause";
  }
}

// A program that replaced a member, or another process with its pid, looks to
// the driver like that member.
TEST_F(PoolStateTest, MemberThatExitedIsAwaitedWhileItsEngineLives) {
  const EngineId engine = JoinOnly(30);
  ASSERT_TRUE(pool_.Join(pool_.NameOf(engine), 0, 31, now_ns_).ok());
  EXPECT_FALSE(pool_.Awaits(31));
  pool_.Exited(31, now_ns_);
  asked_driver_ = false;
  Settle();
  EXPECT_TRUE(asked_driver_);
  EXPECT_TRUE(pool_.Listed({kDaemon, 30, 31}, kDaemon));
  EXPECT_TRUE(pool_.Awaits(31));
  EXPECT_TRUE(pool_.restless());
  EXPECT_TRUE(pool_.Listed({kDaemon, 30}, kDaemon));
  EXPECT_FALSE(pool_.Awaits(31));
  EXPECT_FALSE(pool_.restless());
}

TEST_F(PoolStateTest, FloorWaitsForTheSlabsOfADeadEngine) {
  const EngineId dead = JoinOnly(30);
  pool_.Lease(dead, 10, 1, now_ns_);
  pool_.Exited(30, now_ns_);
  const EngineId a = JoinOnly(10);
  EXPECT_TRUE(absl::IsUnavailable(pool_.RegisterView(a, 10, Spec(7), {})));
  EXPECT_TRUE(
      absl::IsResourceExhausted(pool_.RegisterView(a, 10, Spec(17), {})));
  EXPECT_TRUE(pool_.Listed({kDaemon}, kDaemon));
  Execute();
  EXPECT_TRUE(pool_.RegisterView(a, 10, Spec(7), {}).ok());
}

// --- Deaths ---

TEST_F(PoolStateTest, ListOfAnotherPidNamespaceEndsNoQuarantine) {
  const EngineId a = Serve(10, 3);
  pool_.Exited(10, now_ns_);
  Settle();
  EXPECT_TRUE(asked_driver_);
  EXPECT_FALSE(pool_.Listed({4711, 4712}, kDaemon));
  EXPECT_FALSE(pool_.Listed({}, kDaemon));
  EXPECT_EQ(pool_.slabs().HeldBy(a).slabs, 3u);
  EXPECT_TRUE(pool_.Listed({4711, kDaemon}, kDaemon));
  EXPECT_EQ(pool_.slabs().HeldBy(a).slabs, 0u);
}

TEST_F(PoolStateTest, ListThatWasAskedForBeforeAnExitEndsNoQuarantine) {
  const EngineId a = Serve(10, 3);
  pool_.Lease(JoinOnly(30), 2, 1, now_ns_);
  Execute();
  pool_.Exited(30, now_ns_);
  Settle();
  ASSERT_TRUE(asked_driver_);
  pool_.Exited(10, now_ns_);
  EXPECT_TRUE(pool_.Listed({kDaemon}, kDaemon));
  EXPECT_EQ(pool_.slabs().HeldBy(a).slabs, 3u);
  Settle();
  EXPECT_TRUE(pool_.Listed({kDaemon}, kDaemon));
  EXPECT_EQ(pool_.slabs().HeldBy(a).slabs, 0u);
}

// --- Memory ---

TEST_F(PoolStateTest, MemoryOfAnEngineThatDiedOfABadPageIsReplaced) {
  EXPECT_FALSE(pool_.HasErred(3, now_ns_)) << "errors of before";
  const EngineId dead = JoinOnly(30);
  pool_.Lease(dead, 4, 1, now_ns_);
  pool_.Lease(JoinOnly(31), 2, 2, now_ns_);
  Execute();
  pool_.Exited(30, now_ns_);
  EXPECT_EQ(pool_.AwaitedPids(), std::vector<pid_t>{30});
  EXPECT_TRUE(pool_.HasErred(4, now_ns_));
  EXPECT_TRUE(pool_.Listed({kDaemon}, kDaemon));
  const Effects effects = pool_.TakeEffects();
  EXPECT_EQ(effects.drop.size(), 4u);
  EXPECT_THAT(effects.fill, IsEmpty());
  EXPECT_EQ(pool_.slabs().absent_count(), 4u);
  Settle();
  EXPECT_EQ(pool_.slabs().absent_count(), 0u) << "made again, and zeroed";
  EXPECT_EQ(pool_.slabs().free_count(), kSlabs - 2u);
  Wait(60'000'000'000);
  EXPECT_FALSE(pool_.HasErred(4, now_ns_)) << "no other";
  pool_.Exited(31, now_ns_);
  EXPECT_TRUE(pool_.Listed({kDaemon}, kDaemon));
  EXPECT_EQ(pool_.slabs().absent_count(), 0u);
}

TEST_F(PoolStateTest, MemoryOfAnEngineThatDiesSoonAfterAnErrorIsReplaced) {
  EXPECT_FALSE(pool_.HasErred(0, now_ns_));
  pool_.Lease(JoinOnly(30), 4, 1, now_ns_);
  Execute();
  EXPECT_TRUE(pool_.HasErred(1, now_ns_));
  Wait(1'000'000'000);
  pool_.Exited(30, now_ns_);
  EXPECT_TRUE(pool_.Listed({kDaemon}, kDaemon));
  EXPECT_EQ(pool_.TakeEffects().drop.size(), 4u);
}

TEST_F(PoolStateTest, MemoryThatCannotBeReplacedLeavesThePoolSmaller) {
  EXPECT_FALSE(pool_.HasErred(0, now_ns_));
  pool_.Lease(JoinOnly(30), 4, 1, now_ns_);
  Execute();
  pool_.Exited(30, now_ns_);
  EXPECT_TRUE(pool_.HasErred(1, now_ns_));
  EXPECT_TRUE(pool_.Listed({kDaemon}, kDaemon));
  pool_.TakeEffects();
  pool_.Settle(now_ns_, nullptr);
  for (SlabId slab : pool_.TakeEffects().make) pool_.NotMade(slab);
  EXPECT_EQ(pool_.wanted_slabs(), kSlabs - 4u);
  EXPECT_FALSE(pool_.resizing());
}

TEST_F(PoolStateTest, SlabThatCannotBeZeroedIsNotCounted) {
  const EngineId whole = JoinOnly(30);
  pool_.Lease(whole, 4, 1, now_ns_);
  Execute();
  fills_work_ = false;
  ASSERT_TRUE(pool_.Return(whole, grants_[0].lease).ok());
  Execute();
  EXPECT_TRUE(pool_.restless()) << "it is tried again";
  pool_.Lease(whole, 13, 2, now_ns_);
  Execute();
  ASSERT_EQ(refusals_.size(), 1u);
  EXPECT_EQ(refusals_[0].available, 12u);
  const EngineId a = Serve(10, kSlabs);
  Serve(20, 2);
  EXPECT_EQ(Returning(a), 2u) << "the lost slabs are not on their way";
  fills_work_ = true;
  Settle();
  EXPECT_EQ(pool_.slabs().zeroing_count(), 0u);
}

TEST_F(PoolStateTest, RequestThatWaitedTooLongIsRefused) {
  const EngineId a = Serve(10, kSlabs);
  Use(a, 1);
  const EngineId whole = JoinOnly(30);
  pool_.Lease(whole, 4, 7, now_ns_);
  Settle();
  Wait(PoolState::kLeaseWaitNs - 1);
  Settle();
  EXPECT_THAT(refusals_, IsEmpty());
  Wait(1);
  Settle();
  ASSERT_EQ(refusals_.size(), 1u);
  EXPECT_TRUE(refusals_[0].late);
  EXPECT_EQ(refusals_[0].ticket, 7u);
  EXPECT_EQ(pool_.slabs().promised_count(), 0u);
}

TEST_F(PoolStateTest, RequestOfADeadEngineIsForgottenNotRefused) {
  const EngineId a = Serve(10, kSlabs);
  Use(a, 1);
  pool_.Lease(JoinOnly(30), 4, 7, now_ns_);
  Settle();
  pool_.Exited(30, now_ns_);
  Wait(PoolState::kLeaseWaitNs);
  Settle();
  EXPECT_THAT(refusals_, IsEmpty());
  EXPECT_EQ(pool_.counters().leases_denied, 0u);
}

// In every state: without a new wish, grants and ask-backs end; a floor is
// unmet only while slabs that were asked back are in use; no engine waits for a
// block while another holds an unused slab beyond its floor; all that an engine
// holds beyond its limit has been asked back; and an engine that sleeps holds
// nothing, and wakes up because all floors fit.
TEST_F(PoolStateTest, RandomHistoriesComeToRestAndLeaveNothingUnused) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<EngineId> engines;
  for (pid_t pid = 10; pid < 14; ++pid) {
    engines.push_back(Serve(pid, random() % (kSlabs + 1), 1 + pid % 3));
  }
  const auto any = [&] { return engines[random() % engines.size()]; };
  for (int history = 0; history < 300 && !HasFailure(); ++history) {
    for (int step = 0; step < 20; ++step) {
      const EngineId id = any();
      Wait(random() % (2 * PoolState::kPatienceNs));
      switch (random() % 6) {
        case 0:
          Want(id, random() % (kSlabs + 1));
          break;
        case 1:
          for (const auto& [slab, lease] : pool_.slabs().InView(id)) {
            if (random() % 2 == 0) used_[slab] = random() % 5;
          }
          break;
        case 2:
          if (!IsSuspended(id)) {
            if (random() % 2 == 0) Suspend(id);
          } else {
            EXPECT_TRUE(
                Resume(id, random() % (kSlabs + 1), 1 + pid_of_[id] % 3));
          }
          break;
        case 3:
          Limit(id, random() % 2 == 0
                        ? 0
                        : pool_.Record(id).view.floor + random() % 6);
          break;
        default:
          ReturnDrained(id);
      }
      Settle();
    }
    ASSERT_NO_FATAL_FAILURE(Rest(engines)) << "history " << history;
    const EngineId starving = any();
    ASSERT_NO_FATAL_FAILURE(Rest(engines, {starving})) << "history " << history;
    const abi::ViewRecord its = pool_.Record(starving).view;
    const bool waits = its.leased < std::min(its.wanted, pool_.CapOf(starving));
    uint32_t returning = 0;  // and in use forever
    for (EngineId id : engines) returning += Returning(id);
    for (EngineId id : engines) {
      const abi::ViewRecord view = pool_.Record(id).view;
      if (IsSuspended(id)) {
        EXPECT_EQ(view.leased + view.target + view.wanted, 0u);
      } else {
        EXPECT_GE(view.leased + returning, view.floor);
        EXPECT_LE(view.leased - view.returning, pool_.CapOf(id));
      }
      for (const auto& [slab, lease] : pool_.slabs().InView(id)) {
        EXPECT_FALSE(waits && used_[slab] == 0 &&
                     view.leased - view.returning > view.floor)
            << "history " << history << ": engine " << Number(id)
            << " keeps the unused slab " << Number(slab) << "; starving is "
            << Number(starving) << Text(engines);
      }
    }
  }
}

}  // namespace
}  // namespace fineserve::slab

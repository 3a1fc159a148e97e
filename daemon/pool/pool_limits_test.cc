// Tests of an operator's limit on an engine's slabs (PoolState::SetLimit).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/pool/pool_state_fixture.h"

namespace fineserve::slab {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using PoolLimitsTest = PoolStateTest;

TEST_F(PoolLimitsTest, SlabsAboveTheLimitAreAskedBackThoughNoEngineWantsThem) {
  const EngineId a = Serve(10, kSlabs);
  Use(a, 1);
  ASSERT_EQ(InView(a), kSlabs);
  Limit(a, 5);
  EXPECT_EQ(Returning(a), kSlabs - 5);
  EXPECT_EQ(InView(a), kSlabs) << "nothing is taken that may be written";
  for (int i = 0; i < 20; ++i) {
    Wait(PoolState::kPatienceNs);
    Settle();
  }
  EXPECT_EQ(Returning(a), kSlabs - 5) << "no others instead of late ones";
  Use(a, 0);
  EXPECT_EQ(ReturnDrained(a), kSlabs - 5);
  Rest({a}, {a});
  EXPECT_EQ(InView(a), 5u) << "it goes on wanting all";
  EXPECT_FALSE(pool_.restless());
}

TEST_F(PoolLimitsTest, EmptiestSlabsAreAskedForFirst) {
  const EngineId a = Serve(10, kSlabs);
  Use(a, 4);
  used_[SlabId{3}] = 1;
  used_[SlabId{7}] = 0;
  Limit(a, kSlabs - 2);
  EXPECT_EQ(pool_.slabs().word(SlabId{3}).state, SlabState::kReturning);
  EXPECT_EQ(pool_.slabs().word(SlabId{7}).state, SlabState::kReturning);
}

TEST_F(PoolLimitsTest, SlabsThatOneLeavesAreTheOthersUntilTheLimitIsGone) {
  const EngineId a = Serve(10, kSlabs);
  const EngineId b = Serve(20, kSlabs);
  Limit(a, 4);
  Rest({a, b}, {a, b});
  EXPECT_EQ(InView(a), 4u);
  EXPECT_EQ(InView(b), kSlabs - 4);
  EXPECT_EQ(pool_.Record(a).limit, 4u);
  Limit(a, 0);
  Rest({a, b}, {a, b});
  EXPECT_EQ(InView(a), kSlabs / 2);
  EXPECT_EQ(pool_.Record(a).limit, 0u);
}

TEST_F(PoolLimitsTest, CapIsHigherByWhatTheEngineHasDropped) {
  const EngineId a = JoinOnly(10);
  ViewSpec spec = Spec(1);
  spec.cap_blocks = 3 * 4;
  ASSERT_TRUE(pool_.RegisterView(a, 10, spec, {}).ok());
  ASSERT_TRUE(pool_.ActivateView(a, 10, kSlabs, kSlabs, now_ns_).ok());
  pid_of_[a] = 10;
  Rest({a}, {a});
  EXPECT_EQ(InView(a), 3u);
  const uint64_t slab_bytes = pool_.geometry().slab_bytes();
  pool_.SetDropped(a, 3 * slab_bytes - 1, true);
  Rest({a}, {a});
  EXPECT_EQ(InView(a), 5u) << "whole slabs";
  EXPECT_EQ(pool_.Record(a).view.cap, 3u) << "as the next daemon takes it over";
  Limit(a, 4);
  Rest({a}, {a});
  EXPECT_EQ(InView(a), 4u) << "the operator's word";
  Limit(a, 0);
  pool_.SetDropped(a, uint64_t{1} << 60, true);
  Rest({a}, {a});
  EXPECT_EQ(InView(a), kSlabs);
  Use(a, 0);
  pool_.SetDropped(a, 0, true);
  Settle();
  EXPECT_EQ(Returning(a), kSlabs - 3);
  ReturnDrained(a);
  Rest({a}, {a});
  EXPECT_EQ(InView(a), 3u);
  pool_.SetDropped(a, 3 * slab_bytes, false);
  Rest({a}, {a});
  EXPECT_EQ(InView(a), 3u) << "its operator has set the cap";
  pool_.SetDropped(EngineId{9}, slab_bytes, true);
}

// Own slabs make room only for dropped memory; otherwise, a serving engine
// would wait for its own slabs.
TEST_F(PoolLimitsTest, OwnSlabsMakeRoomForWhatAnEngineHasDropped) {
  const EngineId a = Serve(10, kSlabs);
  ASSERT_EQ(InView(a), kSlabs);
  EXPECT_EQ(pool_.GivableFor(a), 0u);
  pool_.SetDropped(a, 1, false);
  EXPECT_EQ(pool_.GivableFor(a), kSlabs - 1) << "all but its floor";
  pool_.SetDropped(a, 0, false);
  EXPECT_EQ(pool_.GivableFor(a), 0u);
}

TEST_F(PoolLimitsTest, PoolIsExhaustedOnlyIfAnEngineMayHaveMoreThanThereIs) {
  const EngineId a = Serve(10, kSlabs);
  EXPECT_FALSE(pool_.IsExhausted()) << "it has all that it wants";
  const EngineId b = Serve(20, kSlabs);
  Use(a, 1);
  Use(b, 1);
  Rest({a, b}, {a, b});
  EXPECT_TRUE(pool_.IsExhausted());
  Want(a, InView(a));
  Limit(b, InView(b));
  EXPECT_FALSE(pool_.IsExhausted());
}

// The engine asks all the time, but cannot get more.
TEST_F(PoolLimitsTest, EngineAtItsLimitTakesNoIdleSlabsFromOthers) {
  const EngineId a = Serve(10, kSlabs);
  Limit(a, 4);
  const EngineId b = Serve(20, kSlabs);
  Rest({a, b}, {a});
  EXPECT_EQ(InView(a), 4u);
  EXPECT_EQ(InView(b), kSlabs - 4) << "idle, but no engine can use them";
}

TEST_F(PoolLimitsTest, LimitBelowTheFloorIsRefusedNamingTheLeastOne) {
  const EngineId a = Serve(10, kSlabs, /*floor_slabs=*/3);
  const absl::Status s = pool_.SetLimit(a, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(s));
  EXPECT_THAT(std::string(s.message()), HasSubstr("can be 3 slabs at least"));
  EXPECT_EQ(pool_.Record(a).limit, 0u);
  EXPECT_TRUE(pool_.SetLimit(a, 3).ok());
  Suspend(a);
  EXPECT_FALSE(pool_.SetLimit(a, 2).ok()) << "it could not wake up";
}

TEST_F(PoolLimitsTest, ViewWhoseFloorIsAboveItsEnginesLimitIsRefused) {
  const EngineId a = JoinOnly(10);
  ASSERT_TRUE(pool_.SetLimit(a, 2).ok());
  const absl::Status s = pool_.RegisterView(a, 10, Spec(3), {});
  EXPECT_TRUE(absl::IsResourceExhausted(s));
  EXPECT_THAT(std::string(s.message()), HasSubstr("fsctl limit e10 none"));
  EXPECT_TRUE(pool_.RegisterView(a, 10, Spec(2), {}).ok());
}

TEST_F(PoolLimitsTest, NoEngineOrADeadOneCannotBeLimited) {
  EXPECT_TRUE(absl::IsNotFound(pool_.SetLimit(EngineId{9}, 2)));
  const EngineId a = Serve(10, 4);
  pool_.Exited(10, now_ns_);
  EXPECT_TRUE(absl::IsNotFound(pool_.SetLimit(a, 2)));
}

TEST_F(PoolLimitsTest, LimitEndsWithTheEngine) {
  const EngineId a = JoinOnly(10);
  ASSERT_TRUE(pool_.SetLimit(a, 2).ok());
  pool_.Exited(10, now_ns_);
  EXPECT_EQ(pool_.Record(JoinOnly(10)).limit, 0u);
}

TEST_F(PoolLimitsTest, WholeSlabsAboveTheLimitAreRefusedAtOnce) {
  const EngineId whole = JoinOnly(30);
  ASSERT_TRUE(pool_.SetLimit(whole, 5).ok());
  pool_.Lease(whole, 4, 1, now_ns_);
  Execute();
  ASSERT_EQ(grants_.size(), 1u);
  pool_.Lease(whole, 2, 2, now_ns_);
  Execute();
  ASSERT_EQ(refusals_.size(), 1u);
  EXPECT_EQ(refusals_[0].limit, 5u);
  EXPECT_EQ(refusals_[0].available, 1u);
  ASSERT_TRUE(pool_.SetLimit(whole, 2).ok());
  EXPECT_EQ(pool_.slabs().HeldBy(whole).slabs, 4u) << "until it frees them";
  ASSERT_TRUE(pool_.Return(whole, grants_[0].lease).ok());
  pool_.Lease(whole, 2, 3, now_ns_);
  Execute();
  EXPECT_EQ(grants_.size(), 2u);
}

TEST_F(PoolLimitsTest, RequestThatWaitsIsRefusedWhenALimitForbidsIt) {
  const EngineId a = Serve(10, kSlabs);
  Use(a, 1);
  const EngineId whole = JoinOnly(30);
  pool_.Lease(whole, 2, 1, now_ns_);
  pool_.Lease(whole, 4, 2, now_ns_);
  pool_.Lease(whole, 1, 3, now_ns_);
  Settle();
  EXPECT_THAT(refusals_, IsEmpty());
  Limit(whole, 3);
  ASSERT_EQ(refusals_.size(), 1u);
  EXPECT_EQ(refusals_[0].ticket, 2u);
  EXPECT_EQ(refusals_[0].limit, 3u);
  EXPECT_EQ(pool_.slabs().promised_count(), 3u);
}

// An engine with a view also leases whole slabs, which count towards its limit.
TEST_F(PoolLimitsTest, ViewGetsWhatWholeSlabsLeaveOfTheLimit) {
  const EngineId a = Serve(10, 2);
  pool_.Lease(a, 3, 1, now_ns_);
  Execute();
  ASSERT_EQ(grants_.size(), 1u);
  Limit(a, 6);
  Want(a, kSlabs);
  EXPECT_EQ(InView(a), 3u);
  pool_.Lease(a, 1, 2, now_ns_);
  Execute();
  EXPECT_EQ(refusals_.size(), 1u);
  Limit(a, 2);
  Use(a, 0);
  Rest({a});
  EXPECT_EQ(InView(a), 1u) << "its floor, though whole slabs take all";
}

TEST_F(PoolLimitsTest,
       WholeSlabsLackWhatIsPromisedToOthersUnlessALimitForbids) {
  Serve(10, kSlabs, /*floor_slabs=*/3);
  const EngineId b = JoinOnly(20);
  EXPECT_EQ(pool_.LackForWhole(b, kSlabs - 3, {20, 1}), 0u);
  EXPECT_EQ(pool_.LackForWhole(b, kSlabs, {20, 1}), 3u);
  pool_.Lease(b, 5, 1, now_ns_, {20, 1});
  EXPECT_EQ(pool_.LackForWhole(b, kSlabs - 3, {20, 2}), 5u) << "it waits";
  Limit(b, 6);
  EXPECT_EQ(pool_.LackForWhole(b, kSlabs, {20, 2}), 0u) << "growth is no help";
}

TEST_F(PoolLimitsTest, WholeSlabsThatWereGrantedAndNotSeenAreNoLack) {
  const EngineId a = JoinOnly(20);
  pool_.Lease(a, kSlabs, 1, now_ns_, {20, 7});
  Execute();
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(pool_.LackForWhole(a, kSlabs, {20, 7}), 0u) << "asked again";
  EXPECT_EQ(pool_.LackForWhole(a, 1, {20, 8}), 1u);
}

TEST_F(PoolLimitsTest, ProspectsKnowTheLimit) {
  const EngineId a = Serve(10, 0);
  EXPECT_EQ(pool_.Prospects({}).at(a).cap, kSlabs);
  Limit(a, 3);
  EXPECT_EQ(pool_.Prospects({}).at(a).cap, 3u);
  EXPECT_EQ(pool_.Prospects({}).at(a).slabs, 3u);
}

}  // namespace
}  // namespace fineserve::slab

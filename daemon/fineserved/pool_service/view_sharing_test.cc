// Tests of views on a pool: the machine (slab::PoolState) together with the
// code that carries out its decisions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/contract/abi/view_scoreboard.h"
#include "daemon/fineserved/pool_service/pool_fixture.h"

namespace fineserve::server {
namespace {

using abi::SlabState;
using slab::EngineId;
using slab::SlabId;
using ::testing::HasSubstr;

constexpr uint32_t kNoLimit = 0;

// A pool of 8 slabs of 4 granules, engines "a" (pid 10) and "b" (pid 20).
class ViewSharingTest : public PoolFixture {
 protected:
  ViewSharingTest() : PoolFixture({4096, 4, kSlabs}) {}

  // 4 planes of 1 KiB pages: 4 blocks per slab.
  static slab::ViewSpec Spec(uint64_t floor_blocks = 1,
                             uint64_t cap_blocks = 0) {
    return {abi::ViewMode::kView, {4, 1024, 16}, floor_blocks, cap_blocks};
  }
  EngineId Serve(const std::string& name, pid_t pid, uint32_t wanted,
                 const slab::ViewSpec& spec = Spec(),
                 const slab::ShareLimits& limits = {}) {
    const EngineId id = Join(name, pid);
    EXPECT_TRUE(pool_.RegisterView(id, pid, spec, limits).ok());
    EXPECT_TRUE(pool_.ActivateView(id, pid, kSlabs, wanted).ok());
    Poll();
    return id;
  }
  void Want(EngineId id, pid_t pid, uint32_t wanted) {
    EXPECT_TRUE(pool_.Want(id, pid, wanted));
    Poll();
  }
  // Gives back the slabs that the engine was asked to return.
  void ReturnAsked(EngineId id, pid_t pid) {
    for (const auto& [slab, lease] : pool_.slabs().InView(id)) {
      if (pool_.slabs().word(slab).state != SlabState::kReturning) continue;
      EXPECT_TRUE(pool_.machine()->ReturnSlab(id, pid, slab, lease).ok());
    }
    Poll();
  }
  void SetUsed(EngineId id, SlabId slab, uint32_t blocks) {
    const size_t bytes = abi::ViewScoreboardBytes(kSlabs);
    void* scoreboard = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                            pool_.ScoreboardOf(id)->descriptor(), 0);
    ASSERT_NE(scoreboard, MAP_FAILED);
    reinterpret_cast<uint32_t*>(
        static_cast<char*>(scoreboard) +
        sizeof(abi::ViewScoreboardHeader))[Number(slab) + 1] = blocks;
    munmap(scoreboard, bytes);
  }
  uint32_t Leased(EngineId id) { return pool_.slabs().HeldBy(id).in_view; }
  uint32_t Returning(EngineId id) { return pool_.slabs().HeldBy(id).returning; }
  uint32_t ChangesOf(EngineId id) {
    const auto* engines = reinterpret_cast<const abi::EngineEntry*>(
        static_cast<char*>(base_) + sizeof(abi::TableHeader));
    return engines[pool_.state().SlotOf(id)].changes.load();
  }
};

TEST_F(ViewSharingTest, NothingIsLeasedBeforeActivation) {
  const EngineId a = Join("a", 10);
  ASSERT_TRUE(pool_.RegisterView(a, 10, Spec(), {}).ok());
  Poll();
  EXPECT_FALSE(pool_.Want(a, 10, 5));
  EXPECT_EQ(Leased(a), 0u);
}

TEST_F(ViewSharingTest, TableSaysWhatIsWantedThoughNothingComesOfIt) {
  const EngineId a = Serve("a", 10, kSlabs);
  const EngineId b = Serve("b", 20, kSlabs);
  const uint32_t leased = Leased(a);
  Want(a, 10, kSlabs - 1);
  EXPECT_EQ(Leased(a), leased);
  const auto reader = abi::TableReader::Map(table_->descriptor());
  ASSERT_TRUE(reader.ok());
  const auto seen = reader->Read();
  ASSERT_TRUE(seen.ok());
  for (const abi::EngineSnapshot& engine : seen->engines) {
    EXPECT_EQ(engine.view.wanted, engine.id == Number(b) ? kSlabs : kSlabs - 1);
  }
  EXPECT_EQ(seen->engines.size(), 2u);
}

TEST_F(ViewSharingTest, ActiveViewGetsItsFloorThoughItWantsNothing) {
  const EngineId a = Serve("a", 10, 0, Spec(9));
  EXPECT_EQ(Leased(a), 3u);
  EXPECT_EQ(ChangesOf(a), 1u);
}

TEST_F(ViewSharingTest, FormatThatSlabsCannotHoldIsRefusedWithTheSizeThatFits) {
  const EngineId a = Join("a", 10);
  const absl::Status s = pool_.RegisterView(
      a, 10, {abi::ViewMode::kView, {36, 1024, 16}, 1, 0}, {});
  EXPECT_TRUE(absl::IsInvalidArgument(s));
  EXPECT_THAT(std::string(s.message()), HasSubstr("144 KiB"));
}

TEST_F(ViewSharingTest, SecondViewOfAnEngineIsRefusedNamingTheFirst) {
  const EngineId a = Serve("a", 10, 1);
  Join("a", 11);
  const absl::Status s = pool_.RegisterView(a, 11, Spec(), {});
  EXPECT_TRUE(absl::IsFailedPrecondition(s));
  EXPECT_THAT(std::string(s.message()), HasSubstr("pid 10"));
}

TEST_F(ViewSharingTest, FloorThatDoesNotFitBesideTheOthersIsRefused) {
  Serve("a", 10, 0, Spec(20));  // 5 slabs
  const EngineId b = Join("b", 20);
  const absl::Status s = pool_.RegisterView(b, 20, Spec(16), {});
  EXPECT_TRUE(absl::IsResourceExhausted(s));
  EXPECT_TRUE(pool_.RegisterView(b, 20, Spec(12), {}).ok());
}

TEST_F(ViewSharingTest, TensorsSmallerThanTheFloorAreRefusedAtActivation) {
  const EngineId a = Join("a", 10);
  ASSERT_TRUE(pool_.RegisterView(a, 10, Spec(12), {}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(pool_.ActivateView(a, 10, 2, 0)));
}

TEST_F(ViewSharingTest, OnlySlabsThatTheTensorsHoldAreLeased) {
  const EngineId a = Join("a", 10);
  ASSERT_TRUE(pool_.RegisterView(a, 10, Spec(), {}).ok());
  ASSERT_TRUE(pool_.ActivateView(a, 10, 3, kSlabs).ok());
  Poll();
  EXPECT_EQ(Leased(a), 3u);
}

TEST_F(ViewSharingTest, SmallViewIsReturnedSlabsThatItCanUse) {
  const EngineId a = Serve("a", 10, kSlabs);
  for (uint32_t i = 0; i < 3; ++i) SetUsed(a, SlabId{i}, 4);
  const EngineId b = Join("b", 20);
  ASSERT_TRUE(pool_.RegisterView(b, 20, Spec(), {}).ok());
  ASSERT_TRUE(pool_.ActivateView(b, 20, 3, 2).ok());
  Poll();
  ReturnAsked(a, 10);
  EXPECT_EQ(Leased(b), 2u);
  EXPECT_EQ(pool_.slabs().free_count(), 0u) << "asked for no other slab";
  Want(b, 20, kSlabs);
  ReturnAsked(a, 10);
  EXPECT_EQ(Leased(b), 3u);
}

TEST_F(ViewSharingTest, SlabsOnTheirWayCountForARequestOfWholeOnes) {
  const EngineId a = Serve("a", 10, kSlabs);
  const EngineId b = Serve("b", 20, 4);
  EXPECT_EQ(Returning(a), 4u);
  const EngineId whole = Join("whole", 30);
  pool_.Lease(whole, 8, 1);
  EXPECT_EQ(pool_.TakeAnswers().refusals.size(), 1u);
  pool_.Lease(whole, 6, 2);
  EXPECT_TRUE(pool_.TakeAnswers().refusals.empty());
  ReturnAsked(a, 10);
  ReturnAsked(a, 10);
  EXPECT_EQ(pool_.slabs().HeldBy(whole).slabs, 6u);
  EXPECT_EQ(Leased(a), 1u);
  EXPECT_EQ(Leased(b), 1u);
}

TEST_F(ViewSharingTest, ActivationTwiceOrByAnotherProcessIsRefused) {
  const EngineId a = Serve("a", 10, 1);
  Join("a", 11);
  EXPECT_TRUE(absl::IsFailedPrecondition(pool_.ActivateView(a, 10, 7, 1)));
  EXPECT_TRUE(absl::IsFailedPrecondition(pool_.ActivateView(a, 11, 8, 1)));
  EXPECT_FALSE(pool_.Want(a, 11, 5));
}

TEST_F(ViewSharingTest, IdleEngineKeepsItsSlabsUntilAnotherWantsThem) {
  const EngineId a = Serve("a", 10, kSlabs);
  Want(a, 10, 1);
  EXPECT_EQ(Returning(a), 0u);
  Serve("b", 20, 3);
  EXPECT_EQ(Returning(a), 3u);
}

TEST_F(ViewSharingTest, ContestedPoolEndsUpShared) {
  const EngineId a = Serve("a", 10, kSlabs);
  const EngineId b = Serve("b", 20, kSlabs);
  EXPECT_EQ(Leased(b), 0u) << "nothing is free yet";
  EXPECT_EQ(Returning(a), 4u);
  ReturnAsked(a, 10);
  EXPECT_EQ(Leased(a), 4u);
  EXPECT_EQ(Leased(b), 4u);
}

TEST_F(ViewSharingTest, AskedOnceNotAgainWhileItIsOnItsWay) {
  const EngineId a = Serve("a", 10, kSlabs);
  Serve("b", 20, kSlabs);
  const uint32_t changes = ChangesOf(a);
  Poll();
  Poll();
  EXPECT_EQ(Returning(a), 4u);
  EXPECT_EQ(ChangesOf(a), changes) << "sent again though nothing changed";
}

TEST_F(ViewSharingTest, LateSlabIsNotWaitedForWhileItsEngineHasOthers) {
  const EngineId a = Serve("a", 10, kSlabs, Spec(1));
  Want(a, 10, 4);
  Serve("b", 20, 2);
  EXPECT_EQ(Returning(a), 2u);
  clock_.AdvanceNs(slab::PoolState::kPatienceNs - 1);
  Poll();
  EXPECT_EQ(Returning(a), 2u);
  EXPECT_TRUE(pool_.state().restless());
  clock_.AdvanceNs(1);
  Poll();
  EXPECT_EQ(Returning(a), 4u) << "two others instead";
  Poll();
  EXPECT_EQ(Returning(a), 4u) << "these are on their way";
  for (int i = 0; i < 5; ++i) {
    clock_.AdvanceNs(slab::PoolState::kPatienceNs);
    Poll();
  }
  EXPECT_EQ(Returning(a), 7u) << "its floor is never asked for";
  ReturnAsked(a, 10);
  Poll();
  EXPECT_EQ(Leased(a), 4u) << "what it gave beyond its share it gets again";
  EXPECT_FALSE(pool_.state().restless());
}

TEST_F(ViewSharingTest, CheapestSlabsAreAskedBack) {
  const EngineId a = Serve("a", 10, kSlabs);
  for (uint32_t i = 0; i < kSlabs; ++i) SetUsed(a, SlabId{i}, 9);
  SetUsed(a, SlabId{6}, 0);
  SetUsed(a, SlabId{2}, 1);
  Serve("b", 20, 2);
  std::set<uint32_t> returning;
  for (const auto& [slab, lease] : pool_.slabs().InView(a)) {
    if (pool_.slabs().word(slab).state == SlabState::kReturning) {
      returning.insert(Number(slab));
    }
  }
  EXPECT_EQ(returning, (std::set<uint32_t>{2, 6}));
}

TEST_F(ViewSharingTest, CapByRequestAndByOperatorHolds) {
  const EngineId a = Serve("a", 10, kSlabs, Spec(1, 12));
  EXPECT_EQ(Leased(a), 3u);
  const EngineId b = Serve("b", 20, kSlabs, Spec(), {0, 2 * 16384});
  EXPECT_EQ(Leased(b), 2u);
}

TEST_F(ViewSharingTest, OperatorsFloorIsReservedInBytes) {
  const EngineId a = Serve("a", 10, 0, Spec(), {4 * 16384, kNoLimit});
  EXPECT_EQ(Leased(a), 4u);
}

TEST_F(ViewSharingTest, DeadEnginesSlabsGoToTheLivingAfterQuarantineOnly) {
  const EngineId a = Serve("a", 10, kSlabs);
  const EngineId b = Serve("b", 20, kSlabs);
  backing_.set_device_pids(std::vector<pid_t>{10});
  pool_.Exited(10);
  clock_.AdvanceNs(slab::PoolState::kListNs);
  Poll();
  EXPECT_EQ(Leased(b), 0u);
  EXPECT_EQ(pool_.slabs().HeldBy(a).slabs, kSlabs);
  backing_.set_device_pids(std::vector<pid_t>{});
  clock_.AdvanceNs(slab::PoolState::kListNs);
  Poll();
  Poll();
  EXPECT_EQ(Leased(b), kSlabs);
}

TEST_F(ViewSharingTest, DeadViewsSlabsStayWithTheMembersThatLive) {
  const EngineId a = Serve("a", 10, 4);
  Join("a", 11);
  pool_.Exited(10);
  Poll();
  EXPECT_EQ(Leased(a), 4u);
  const absl::Status s = pool_.RegisterView(a, 11, Spec(), {});
  EXPECT_THAT(std::string(s.message()), HasSubstr("process has died"));
}

TEST_F(ViewSharingTest, ClosedViewGivesEverythingBackAndMayBeRegisteredAgain) {
  const EngineId a = Serve("a", 10, 5);
  EXPECT_FALSE(pool_.machine()->CloseView(a, 99).ok());
  ASSERT_TRUE(pool_.machine()->CloseView(a, 10).ok());
  Poll();
  EXPECT_EQ(pool_.slabs().free_count(), kSlabs);
  EXPECT_TRUE(pool_.RegisterView(a, 10, Spec(), {}).ok());
}

TEST_F(ViewSharingTest, SuspendedViewClaimsNothingAndItsFloorGoesToOthers) {
  const EngineId a = Serve("a", 10, 5, Spec(4 * 6));  // a floor of 6 slabs
  EXPECT_FALSE(pool_.machine()->SuspendView(a, 99).ok());
  const EngineId b = Join("b", 20);
  EXPECT_FALSE(pool_.RegisterView(b, 20, Spec(4 * 6), {}).ok());
  ASSERT_TRUE(pool_.machine()->SuspendView(a, 10).ok());
  Poll();
  EXPECT_EQ(pool_.slabs().free_count(), kSlabs);
  EXPECT_EQ(Serve("b", 20, kSlabs, Spec(4 * 6)), b);
  EXPECT_EQ(Leased(b), kSlabs);
  EXPECT_EQ(Leased(a), 0u);
  EXPECT_EQ(pool_.state().Record(a).view.state, abi::ViewState::kSuspended);
  EXPECT_EQ(pool_.state().Record(a).view.target, 0u);
  EXPECT_FALSE(pool_.Want(a, 10, 3));
  EXPECT_FALSE(pool_.ActivateView(a, 10, kSlabs, 1).ok());
  EXPECT_FALSE(pool_.state().ViewGranules(a, 10, 0, 1).ok());
  EXPECT_TRUE(pool_.state().Prospects({}).count(a) == 0);
}

TEST_F(ViewSharingTest, SuspendedViewIsTakenUpAgainIfItsFloorIsThere) {
  const EngineId a = Serve("a", 10, 5, Spec(4 * 6));
  ASSERT_TRUE(pool_.machine()->SuspendView(a, 10).ok());
  const EngineId b = Serve("b", 20, kSlabs, Spec(4 * 3));
  const absl::Status refused = pool_.RegisterView(a, 10, Spec(4 * 6), {});
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("floor of 6 slabs (24 blocks) does not fit"));
  EXPECT_EQ(pool_.state().Record(a).view.state, abi::ViewState::kSuspended);
  ASSERT_TRUE(pool_.machine()->CloseView(b, 20).ok());
  EXPECT_EQ(Serve("b", 20, kSlabs, Spec(4 * 2)), b);
  EXPECT_EQ(Leased(b), kSlabs);
  EXPECT_EQ(Serve("a", 10, 5, Spec(4 * 6)), a);
  EXPECT_EQ(Leased(a), 0u) << "the pool is full";
  ReturnAsked(b, 20);
  EXPECT_EQ(Leased(a), 6u);
}

TEST_F(ViewSharingTest, SlabsAskedBackComeWithASuspension) {
  const EngineId a = Serve("a", 10, kSlabs);
  const EngineId b = Serve("b", 20, kSlabs);
  EXPECT_EQ(pool_.slabs().HeldBy(a).returning, kSlabs / 2);
  ASSERT_TRUE(pool_.machine()->SuspendView(a, 10).ok());
  Poll();
  EXPECT_EQ(Leased(b), kSlabs);
}

TEST_F(ViewSharingTest, EngineThatDiesInItsSleepLeavesNothing) {
  const EngineId a = Serve("a", 10, 5);
  ASSERT_TRUE(pool_.machine()->SuspendView(a, 10).ok());
  Poll();
  pool_.Exited(10);
  Poll();
  EXPECT_EQ(pool_.slabs().free_count(), kSlabs);
  EXPECT_EQ(pool_.state().NameOf(a), "");
}

TEST_F(ViewSharingTest, AnotherMemberCannotTakeASuspendedViewUp) {
  const EngineId a = Serve("a", 10, 5);
  ASSERT_TRUE(pool_.machine()->SuspendView(a, 10).ok());
  Join("a", 11);
  EXPECT_FALSE(pool_.RegisterView(a, 11, Spec(), {}).ok());
  EXPECT_TRUE(pool_.RegisterView(a, 10, Spec(), {}).ok());
}

// The answer may have been lost with the daemon that gave it.
TEST_F(ViewSharingTest, ProcessMayRegisterAndActivateAgain) {
  const EngineId a = Join("a", 10);
  ASSERT_TRUE(pool_.RegisterView(a, 10, Spec(), {}).ok());
  ASSERT_TRUE(pool_.RegisterView(a, 10, Spec(), {}).ok());
  ASSERT_TRUE(pool_.ActivateView(a, 10, kSlabs, 5).ok());
  EXPECT_TRUE(pool_.ActivateView(a, 10, kSlabs, 5).ok());
  EXPECT_FALSE(pool_.ActivateView(a, 10, kSlabs - 1, 5).ok());
  EXPECT_FALSE(pool_.RegisterView(a, 10, Spec(), {}).ok()) << "it is in use";
}

TEST_F(ViewSharingTest, RequestForWholeSlabsIsNotOvertakenByViews) {
  backing_.set_zeroing_completes(false);
  const EngineId a = Serve("a", 10, 4);
  ASSERT_TRUE(
      pool_.machine()->CloseView(a, 10).ok());  // 4 slabs are being zeroed
  const EngineId whole = Join("whole", 30);
  pool_.Lease(whole, 6, 1);
  const EngineId b = Serve("b", 20, kSlabs);
  EXPECT_EQ(Leased(b), 0u);
  backing_.set_zeroing_completes(true);
  Poll();
  EXPECT_EQ(pool_.slabs().HeldBy(whole).slabs, 6u);
  EXPECT_EQ(Leased(b), 2u);
}

TEST_F(ViewSharingTest, GuardedViewMayMapItsOwnSlabsOnly) {
  slab::ViewSpec spec = Spec();
  spec.mode = abi::ViewMode::kGuarded;
  const EngineId a = Serve("a", 10, 2, spec);
  const slab::PoolState& state = pool_.state();
  EXPECT_TRUE(state.ViewGranules(a, 10, 4 * 6, 1).ok());
  EXPECT_FALSE(state.ViewGranules(a, 10, 4 * 6 - 1, 2).ok());
  EXPECT_FALSE(state.ViewGranules(a, 11, 4 * 6, 1).ok());
  const EngineId b = Serve("b", 20, 1);
  EXPECT_EQ(state.ViewGranules(b, 20, 30, 9)->size(), 2u) << "mode view";
  EXPECT_FALSE(state.ViewGranules(b, 20, 32, 1).ok());
}

TEST_F(ViewSharingTest, ProspectIsWhatAViewWouldHoldIfItWantedAll) {
  const EngineId a = Serve("a", 10, 2);
  const EngineId b = Serve("b", 20, 1);
  auto prospects = pool_.state().Prospects({});
  ASSERT_EQ(prospects.size(), 2u);
  EXPECT_EQ(prospects[a].slabs, kSlabs - 1) << "b wants one";
  EXPECT_EQ(prospects[b].slabs, kSlabs - 2) << "a wants two";
  EXPECT_EQ(prospects[a].cap, kSlabs);
  EXPECT_EQ(prospects[a].slab_tokens, 4u * 16);
}

TEST_F(ViewSharingTest, ProspectLeavesToOthersWhatTheyWerePromised) {
  const EngineId a = Serve("a", 10, 1);
  const EngineId b = Serve("b", 20, 1);
  const uint64_t three_slabs = 2 * 4 * 16 + 1;
  EXPECT_EQ(pool_.state().Prospects({{b, three_slabs}})[a].slabs, kSlabs - 3);
  EXPECT_EQ(pool_.state().Prospects({{b, UINT64_MAX}})[a].slabs, kSlabs / 2)
      << "its fair share";
}

TEST_F(ViewSharingTest, ViewThatIsNotActiveHasNoProspect) {
  const EngineId a = Join("a", 10);
  ASSERT_TRUE(pool_.RegisterView(a, 10, Spec(), {}).ok());
  EXPECT_TRUE(pool_.state().Prospects({}).empty());
}

TEST_F(ViewSharingTest, PoolShrinksByWhatIsFreeAndWhatViewsReturn) {
  const EngineId a = Serve("a", 10, 5, Spec(8));
  EXPECT_EQ(Leased(a), 5u);
  ASSERT_TRUE(pool_.machine()->Resize(3).ok());
  Poll();
  EXPECT_EQ(pool_.state().present_slabs(), 5u) << "the free ones went at once";
  EXPECT_EQ(Returning(a), 2u);
  ReturnAsked(a, 10);
  Poll();
  EXPECT_EQ(pool_.state().present_slabs(), 3u);
  EXPECT_EQ(Leased(a), 3u);
  EXPECT_FALSE(pool_.state().resizing());
}

TEST_F(ViewSharingTest, PoolGrowsWhileEnginesWaitForSlabs) {
  const EngineId a = Serve("a", 10, 2);
  ASSERT_TRUE(pool_.machine()->Resize(2).ok());
  Poll();
  Want(a, 10, kSlabs);
  EXPECT_EQ(Leased(a), 2u);
  ASSERT_TRUE(pool_.machine()->Resize(6).ok());
  Poll();
  Poll();
  EXPECT_EQ(Leased(a), 6u);
  EXPECT_EQ(table_->counters().slabs_added.load(), 4u);
}

TEST_F(ViewSharingTest, SlabThatCameBackSaysThatItIsOtherMemory) {
  const auto* slabs = reinterpret_cast<const abi::SlabEntry*>(
      static_cast<char*>(base_) + sizeof(abi::TableHeader) +
      abi::kEngineCapacity * sizeof(abi::EngineEntry));
  EXPECT_EQ(slabs[7].memory.load(), 0u);
  ASSERT_TRUE(pool_.machine()->Resize(7).ok());
  Poll();
  ASSERT_TRUE(pool_.machine()->Resize(8).ok());
  Poll();
  EXPECT_EQ(slabs[7].memory.load(), 1u);
  EXPECT_EQ(slabs[6].memory.load(), 0u);
}

TEST_F(ViewSharingTest, GpuThatIsFullEndsTheGrowth) {
  ASSERT_TRUE(pool_.machine()->Resize(4).ok());
  Poll();
  backing_.set_device_full(true);
  ASSERT_TRUE(pool_.machine()->Resize(8).ok());
  Poll();
  EXPECT_FALSE(pool_.state().resizing());
  EXPECT_EQ(pool_.state().present_slabs(), 4u);
}

TEST_F(ViewSharingTest, PoolDoesNotShrinkBelowTheFloors) {
  Serve("a", 10, 0, Spec(16));
  EXPECT_TRUE(absl::IsInvalidArgument(pool_.machine()->Resize(3)));
  EXPECT_TRUE(absl::IsInvalidArgument(pool_.machine()->Resize(9)));
}

// Engines register, want, return and die at random. The pool's books stay
// right, floors are kept where slabs allow, and in the end nothing is lost.
TEST_F(ViewSharingTest, NothingIsLostInRandomHistories) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  struct Engine {
    EngineId id;
    pid_t pid;
  };
  std::vector<Engine> engines;
  pid_t last_pid = 100;
  const auto step_end = [&] {
    clock_.AdvanceNs(slab::PoolState::kListNs);
    Poll();
    pool_.slabs().CheckInvariants();
  };
  const auto die = [&](size_t i) {
    pool_.Exited(engines[i].pid);
    engines.erase(engines.begin() + static_cast<std::ptrdiff_t>(i));
  };
  for (int step = 0; step < 5000; ++step) {
    const size_t i = engines.empty() ? 0 : random() % engines.size();
    switch (engines.empty() ? 0 : random() % 9) {
      case 0: {
        const pid_t pid = ++last_pid;
        const EngineId id = Join(absl::StrCat("e", pid), pid);
        if (pool_.RegisterView(id, pid, Spec(1 + random() % 8), {}).ok() &&
            pool_.ActivateView(id, pid, kSlabs, random() % 10).ok()) {
          engines.push_back({id, pid});
        } else {
          pool_.Exited(pid);
        }
        break;
      }
      case 1:
        if (random() % 4 == 0) die(i);
        break;
      case 2:
        // Resize refuses sizes below the floors.
        pool_.machine()->Resize(1 + random() % kSlabs).IgnoreError();
        break;
      case 3:
        Want(engines[i].id, engines[i].pid, random() % 10);
        break;
      default:
        ReturnAsked(engines[i].id, engines[i].pid);
    }
    step_end();
  }
  while (!engines.empty()) die(0);
  ASSERT_TRUE(pool_.machine()->Resize(kSlabs).ok());
  // A slab may leave quarantine, then the pool, and come back.
  for (int i = 0; i < 8 && pool_.slabs().free_count() < kSlabs; ++i) step_end();
  EXPECT_EQ(pool_.slabs().free_count(), kSlabs);
}

}  // namespace
}  // namespace fineserve::server

#include "shim/ranks/group_leases.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "daemon/contract/abi/engine_entry.h"
#include "shim/testdata/plain_slab_table.h"
#include "shim/testdata/plain_view_scoreboard.h"

namespace fineserve::shim {
namespace {

using abi::SlabState;
using abi::SlabWord;
using Hold = GroupLeases::Hold;

constexpr uint32_t kSlabs = 8;
constexpr uint32_t kSlot = 5;
constexpr uint32_t kEngine = 7;
constexpr uint32_t kNeighbour = 9;  // in slot 6

// A slab table, and the engine's view of it.
struct Gpu {
  Gpu() {
    Record(kSlot, kEngine, {.target = 8, .offer = 8});
    EXPECT_TRUE(
        leases.Open(table.header(), table.bytes(), kSlot, kEngine, kSlabs));
    EXPECT_TRUE(
        shown.Adopt(MakeViewScoreboard(kSlabs), /*epoch=*/42, kEngine, kSlabs));
    for (uint32_t v = 1; v <= kSlabs; ++v) shown.ShowMapped(v, 1);
  }
  ~Gpu() {
    leases.Close();
    shown.Close();
  }

  struct Share {
    uint32_t leased = 0;
    uint32_t target = 0;
    uint32_t offer = 0;
    uint32_t floor = 0;
    uint32_t cap = kSlabs;
    uint32_t limit = 0;
  };
  void Record(uint32_t slot, uint32_t engine, const Share& share) {
    abi::EngineRecord record = {};
    record.id = engine;
    record.state = abi::EngineState::kAlive;
    record.view.state = abi::ViewState::kActive;
    record.view.leased = share.leased;
    record.view.target = share.target;
    record.view.offer = share.offer;
    record.view.floor = share.floor;
    record.view.cap = share.cap;
    record.limit = share.limit;
    table.Write(slot, record);
    sight.Look(table.header());
  }
  void Set(uint32_t v, SlabState state, uint32_t engine, uint32_t lease) {
    Entry(v).word = SlabWord::Pack({state, engine, lease});
    leases.Look();
  }
  void Lease(uint32_t v) { Set(v, SlabState::kPartial, kEngine, 100 + v); }
  void AskBack(uint32_t v) { Set(v, SlabState::kReturning, kEngine, 100 + v); }
  abi::SlabEntry& Entry(uint32_t v) { return table.slabs()[v - 1]; }

  PlainSlabTable table{kSlabs};
  ViewLeases leases;
  PoolSight sight;
  ViewScoreboardWriter shown;
};

// An engine on two GPUs.
class GroupLeasesTest : public testing::Test {
 protected:
  void SetUp() override {
    const GroupLeases::Place places[] = {Place(&gpus_[0]), Place(&gpus_[1])};
    ASSERT_TRUE(leases_.Open(places, 2, kSlabs, kSlabs, /*seed=*/1));
  }
  void TearDown() override { leases_.Close(); }
  static GroupLeases::Place Place(Gpu* gpu) {
    return {&gpu->leases, &gpu->sight, &gpu->shown, kEngine, kSlot};
  }
  void Want(uint32_t slabs, uint64_t now_ms = 1) {
    leases_.Want(slabs);
    leases_.Plan(now_ms);
  }
  void LeaseOnBoth(uint32_t v) {
    gpus_[0].Lease(v);
    gpus_[1].Lease(v);
    leases_.Look();
  }
  ViewLeases::Hold On(int gpu, uint32_t v) { return gpus_[gpu].leases.hold(v); }
  std::vector<uint32_t> Wished() {
    std::vector<uint32_t> wished;
    for (uint32_t v = 0; (v = leases_.Next(Hold::kWished, v)) != 0;) {
      wished.push_back(v);
    }
    return wished;
  }

  Gpu gpus_[2];
  GroupLeases leases_;
};

TEST_F(GroupLeasesTest, ASlabIsReadyWhenAllGpusHaveLeasedIt) {
  Want(2);
  EXPECT_EQ(Wished(), (std::vector<uint32_t>{1, 2}));
  gpus_[0].Lease(1);
  leases_.Look();
  EXPECT_EQ(leases_.hold(1), Hold::kWished);
  gpus_[1].Lease(1);
  leases_.Look();
  EXPECT_EQ(leases_.hold(1), Hold::kReady);
  leases_.Report(1);
  EXPECT_EQ(leases_.hold(1), Hold::kHeld);
}

TEST_F(GroupLeasesTest, SlabThatOneGpuAsksBackLeavesAll) {
  Want(1);
  LeaseOnBoth(1);
  leases_.Report(1);
  gpus_[1].AskBack(1);
  leases_.Look();
  EXPECT_EQ(leases_.hold(1), Hold::kAsked);
  leases_.Report(1);
  EXPECT_EQ(On(0, 1), ViewLeases::Hold::kHeld) << "it is still in use";
  EXPECT_TRUE(leases_.Return(1));
  EXPECT_EQ(On(0, 1), ViewLeases::Hold::kDone);
  EXPECT_EQ(On(1, 1), ViewLeases::Hold::kDone);
  EXPECT_FALSE(leases_.Return(1));
}

TEST_F(GroupLeasesTest, ItWantsTheLeastOffer) {
  gpus_[1].Record(kSlot, kEngine, {.offer = 3});
  Want(8);
  EXPECT_EQ(leases_.take(), 3u);
  EXPECT_EQ(Wished().size(), 3u);
  EXPECT_TRUE(leases_.wants_more());
}

TEST_F(GroupLeasesTest, ItWishesForWhatIsFreeOnAllGpusFirst) {
  gpus_[0].Set(1, SlabState::kPartial, kNeighbour, 1);
  gpus_[0].Record(6, kNeighbour, {.leased = 2, .target = 1});
  gpus_[1].Set(2, SlabState::kQuarantined, kNeighbour, 2);
  gpus_[1].Set(3, SlabState::kZeroing, 0, 0);
  Want(1);
  EXPECT_EQ(Wished(), std::vector<uint32_t>{4});
  Want(6);
  EXPECT_EQ(Wished(), (std::vector<uint32_t>{3, 4, 5, 6, 7, 8}));
  Want(8);
  EXPECT_EQ(Wished().front(), 1u) << "the neighbour can spare it";
  EXPECT_EQ(Wished().size(), 7u) << "but no quarantined one";
}

TEST_F(GroupLeasesTest, SlabOnOneGpuOnlyIsGivenBackAfterAWhile) {
  Want(1);
  gpus_[0].Lease(1);
  gpus_[1].Set(1, SlabState::kPartial, kNeighbour, 1);
  leases_.Look();
  leases_.Plan(GroupLeases::kPatienceMs);
  EXPECT_EQ(leases_.hold(1), Hold::kWished);
  leases_.Plan(1 + GroupLeases::kPatienceMs);
  EXPECT_EQ(leases_.hold(1), Hold::kGiven);
  EXPECT_EQ(On(0, 1), ViewLeases::Hold::kDone);
  EXPECT_EQ(Wished().size(), 1u) << "another one";
}

TEST_F(GroupLeasesTest, SlabOnItsWayIsWaitedForLonger) {
  Want(1);
  gpus_[0].Lease(1);
  gpus_[1].Set(1, SlabState::kReturning, kNeighbour, 1);
  leases_.Look();
  leases_.Plan(1 + GroupLeases::kPatienceMs);
  EXPECT_EQ(leases_.hold(1), Hold::kWished);
  leases_.Plan(1 + GroupLeases::kDrainMs);
  EXPECT_EQ(leases_.hold(1), Hold::kGiven);
}

TEST_F(GroupLeasesTest, SlabInUseIsWaitedForOnlyWhereNoneIsUnused) {
  Want(1);
  gpus_[0].Lease(1);
  gpus_[1].Set(1, SlabState::kReturning, kNeighbour, 1);
  gpus_[1].Entry(1).asker = abi::SlabUse::Pack(1);
  leases_.Look();
  leases_.Plan(kSlabs);
  EXPECT_EQ(leases_.hold(1), Hold::kWished) << "it may be free soon";
  for (uint32_t v = 2; v <= kSlabs; ++v) {
    gpus_[1].Set(v, SlabState::kReturning, kNeighbour, v);
    gpus_[1].Entry(v).asker = abi::SlabUse::Pack(1);
  }
  leases_.Plan(1 + GroupLeases::kPatienceMs);
  EXPECT_EQ(leases_.hold(1), Hold::kWished);
  gpus_[1].Entry(3).asker = 0;
  leases_.Plan(1 + GroupLeases::kPatienceMs);
  EXPECT_EQ(leases_.hold(1), Hold::kGiven);
  EXPECT_EQ(Wished(), std::vector<uint32_t>{3});
}

TEST_F(GroupLeasesTest, AGrantThatComesAfterTheWishIsGivenBack) {
  Want(1);
  Want(0);
  EXPECT_EQ(Wished().size(), 0u);
  leases_.Look();
  EXPECT_EQ(leases_.hold(1), Hold::kNone);
  gpus_[0].Lease(1);
  leases_.Look();
  EXPECT_EQ(leases_.hold(1), Hold::kGiven);
  EXPECT_EQ(On(0, 1), ViewLeases::Hold::kDone);
}

TEST_F(GroupLeasesTest, WithoutADaemonItGivesBackWhatOnlySomeGpusHold) {
  Want(3);
  LeaseOnBoth(1);
  gpus_[0].Lease(2);
  leases_.Look();
  leases_.Rest();
  EXPECT_EQ(leases_.hold(1), Hold::kReady);
  EXPECT_EQ(On(0, 2), ViewLeases::Hold::kDone);
  EXPECT_EQ(Wished().size(), 0u);
  EXPECT_EQ(leases_.take(), 1u);
}

TEST_F(GroupLeasesTest, SlabsAreInReachIfAllGpusCouldLeaseThem) {
  EXPECT_EQ(leases_.CountReach().sure, kSlabs);
  gpus_[0].Set(1, SlabState::kQuarantined, kNeighbour, 1);
  gpus_[1].Set(2, SlabState::kFull, kNeighbour, 2);
  gpus_[1].Set(3, SlabState::kZeroing, 0, 0);
  EXPECT_EQ(leases_.CountReach().sure, kSlabs - 2) << "3 is on its way";
  gpus_[0].Set(4, SlabState::kPartial, kNeighbour, 1);
  gpus_[0].Record(6, kNeighbour, {.leased = 1, .target = 1, .floor = 1});
  EXPECT_EQ(leases_.CountReach().sure, kSlabs - 3) << "its floor";
  gpus_[0].Record(6, kNeighbour, {.leased = 2, .target = 2, .floor = 1});
  EXPECT_EQ(leases_.CountReach().sure, kSlabs - 2) << "it has two more";
}

TEST_F(GroupLeasesTest, SlabsInUseAreInReachOfAnEngineThatRunsNothing) {
  gpus_[0].Record(6, kNeighbour, {.leased = 4, .target = 2});
  for (uint32_t v = 1; v <= 4; ++v) {
    gpus_[0].Set(v, SlabState::kPartial, kNeighbour, v);
  }
  gpus_[0].Entry(1).asker = abi::SlabUse::Pack(3);
  EXPECT_EQ(leases_.CountReach().sure, kSlabs - 1);
  EXPECT_EQ(leases_.CountReach().first, kSlabs);
  Want(kSlabs - 1);
  EXPECT_FALSE(leases_.wished(1)) << "it comes last";
  gpus_[0].Entry(1).asker = abi::LeaseAsker::Pack({5, 3, 1});
  EXPECT_EQ(leases_.CountReach().sure, kSlabs) << "who asked for a lease";
}

// The free slabs of the two GPUs have no number in common.
TEST_F(GroupLeasesTest, SlabsFreeOnOneGpuOnlyAreNotInReach) {
  for (uint32_t v = 1; v <= kSlabs; ++v) {
    gpus_[v % 2].Set(v, SlabState::kFull, kNeighbour, v);
  }
  EXPECT_EQ(leases_.CountReach().sure, 0u);
}

TEST_F(GroupLeasesTest, SlabsThatItHasAreInReachUntilTheyAreReturned) {
  Want(2);
  LeaseOnBoth(1);
  LeaseOnBoth(2);
  leases_.Report(1);
  gpus_[1].AskBack(1);
  leases_.Look();
  EXPECT_EQ(leases_.Having(), 2u);
  EXPECT_EQ(leases_.CountReach().sure, kSlabs);
  leases_.Report(1);
  EXPECT_TRUE(leases_.Return(1));
  EXPECT_EQ(leases_.Having(), 1u);
}

TEST_F(GroupLeasesTest, ItsMostIsTheLeastCapOrLimitOfItsGpus) {
  EXPECT_EQ(leases_.Most(), kSlabs);
  gpus_[1].Record(kSlot, kEngine, {.cap = 6});
  EXPECT_EQ(leases_.Most(), 6u);
  gpus_[0].Record(kSlot, kEngine, {.limit = 4});
  EXPECT_EQ(leases_.Most(), 4u);
}

TEST_F(GroupLeasesTest, EachGpuHearsOfTheBlocksThatTheOthersAreSureOf) {
  EXPECT_EQ(leases_.SureBeside(0).blocks, UINT64_MAX) << "no daemon says it";
  const auto say = [this](int gpu, uint64_t blocks, uint64_t first) {
    abi::EngineEntry& entry = gpus_[gpu].table.engines()[kSlot];
    entry.sure_blocks = blocks + 1;
    entry.first_blocks = first + 1;
    gpus_[gpu].sight.Look(gpus_[gpu].table.header());
  };
  say(0, 7, 8);
  say(1, 0, 4);
  EXPECT_EQ(leases_.SureBeside(0).blocks, 0u);
  EXPECT_EQ(leases_.SureBeside(0).first_blocks, 4u);
  EXPECT_EQ(leases_.SureBeside(1).blocks, 7u);
  EXPECT_EQ(leases_.SureBeside(1).first_blocks, 8u);
}

TEST_F(GroupLeasesTest, MemoryByWhichAPoolGrewIsChosenOnceItsRankHasMappedIt) {
  gpus_[1].Entry(1).memory = 1;
  Want(1);
  EXPECT_EQ(Wished(), std::vector<uint32_t>{2});
  EXPECT_EQ(leases_.CountReach().first, kSlabs - 1);
  gpus_[1].shown.ShowMapped(1, 2);
  Want(2);
  EXPECT_EQ(Wished(), (std::vector<uint32_t>{1, 2}));
  LeaseOnBoth(1);
  EXPECT_EQ(leases_.hold(1), Hold::kReady);
}

TEST_F(GroupLeasesTest, SlabThatGotOtherMemorySinceItWasChosenIsGivenBack) {
  Want(1);
  EXPECT_EQ(Wished(), std::vector<uint32_t>{1});
  gpus_[1].Entry(1).memory = 1;
  LeaseOnBoth(1);
  EXPECT_EQ(leases_.hold(1), Hold::kGiven);
}

}  // namespace
}  // namespace fineserve::shim

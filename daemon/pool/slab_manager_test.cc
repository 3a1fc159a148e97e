#include "daemon/pool/slab_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/types/optional.h"

namespace fineserve::slab {
namespace {

using abi::SlabState;
using abi::SlabWord;

constexpr EngineId kA{1};
constexpr EngineId kB{2};

// Checks every change that a manager has made.
class Recorder {
 public:
  explicit Recorder(uint32_t slabs) : words_(slabs) {}
  void Follow(SlabManager* manager) {
    for (const SlabChange& change : manager->TakeChanges()) {
      SlabWord& now = words_[Number(change.slab)];
      // Zero before lease: a slab becomes FREE only out of ZEROING.
      if (change.word.state == SlabState::kFree) {
        EXPECT_EQ(now.state, SlabState::kZeroing);
      }
      // One owner: a leased slab changes hands only through zeroing.
      if (now.engine != 0 && change.word.engine != 0) {
        EXPECT_EQ(now.engine, change.word.engine);
      }
      now = change.word;
    }
    for (uint32_t i = 0; i < words_.size(); ++i) {
      EXPECT_EQ(SlabWord::Pack(words_[i]),
                SlabWord::Pack(manager->word(SlabId{i})));
    }
  }

 private:
  std::vector<SlabWord> words_;
};

struct Outcome {
  absl::optional<uint32_t> available;  // slabs left, if it was refused
  absl::optional<SlabManager::Grant> grant;

  bool refused() const { return available.has_value(); }
  bool waits() const { return !refused() && !grant; }
};

// Leases from slabs that are free, come from zeroing, or are `reclaimable`.
Outcome Lease(SlabManager* manager, EngineId engine, uint32_t count,
              uint64_t ticket, uint32_t reclaimable = 0) {
  Outcome outcome;
  outcome.available = manager->Lease(
      {engine, count, ticket, /*since_ns=*/0},
      manager->free_count() + manager->zeroing_count() + reclaimable);
  for (SlabManager::Grant& grant : manager->TakeGrants()) {
    EXPECT_EQ(grant.ticket, ticket) << "another could have been granted before";
    outcome.grant = std::move(grant);
  }
  return outcome;
}

class SlabManagerTest : public ::testing::Test {
 protected:
  void ZeroEverything() {
    for (uint32_t i = 0; i < kSlabs; ++i) {
      if (manager_.word(SlabId{i}).state == SlabState::kZeroing) {
        manager_.Zeroed(SlabId{i});
      }
    }
  }
  void TearDown() override {
    manager_.CheckInvariants();
    recorder_.Follow(&manager_);
  }

  static constexpr uint32_t kSlabs = 8;
  Recorder recorder_{kSlabs};
  SlabManager manager_{kSlabs, kSlabs};
};

TEST_F(SlabManagerTest, NothingIsLeasedBeforeTheFirstZeroFill) {
  EXPECT_TRUE(Lease(&manager_, kA, 2, 7).waits());
  manager_.Zeroed(SlabId{3});
  EXPECT_TRUE(manager_.TakeGrants().empty());
  manager_.Zeroed(SlabId{1});
  const auto grants = manager_.TakeGrants();
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].ticket, 7u);
  EXPECT_EQ(grants[0].slabs, (std::vector<SlabId>{SlabId{1}, SlabId{3}}));
}

TEST_F(SlabManagerTest, LeaseAfterLastSlabIsExhaustedAndNamesWhatIsLeft) {
  ZeroEverything();
  Lease(&manager_, kA, 6, 1);
  const auto outcome = Lease(&manager_, kB, 3, 2);
  EXPECT_EQ(outcome.available, 2u);
}

TEST_F(SlabManagerTest, ReturnedSlabsAreZeroedBeforeTheyAreLeasedAgain) {
  ZeroEverything();
  const SlabManager::Grant grant = *Lease(&manager_, kA, kSlabs, 1).grant;
  ASSERT_TRUE(manager_.Return(kA, grant.lease).ok());
  EXPECT_EQ(manager_.free_count(), 0u);
  EXPECT_TRUE(Lease(&manager_, kB, 1, 2).waits());
}

TEST_F(SlabManagerTest, NoRequestOvertakesAWaitingOne) {
  for (uint32_t i = 0; i < 3; ++i) manager_.Zeroed(SlabId{i});
  EXPECT_TRUE(Lease(&manager_, kA, 5, 1).waits());
  EXPECT_TRUE(Lease(&manager_, kB, 1, 2).waits());
}

TEST_F(SlabManagerTest, WaitingRequestsAreNeverPromisedMoreThanWillCome) {
  EXPECT_TRUE(Lease(&manager_, kA, 5, 1).waits());
  EXPECT_TRUE(Lease(&manager_, kB, 4, 2).refused());
}

TEST_F(SlabManagerTest, RequestWaitsForWhatTheCallerWillHaveBack) {
  ZeroEverything();
  const SlabId slab = *manager_.LeaseForView(kB, SlabId{kSlabs});
  const LeaseId lease{manager_.word(slab).lease};
  EXPECT_TRUE(Lease(&manager_, kA, kSlabs, 1, /*reclaimable=*/0).refused());
  EXPECT_TRUE(Lease(&manager_, kA, kSlabs, 2, /*reclaimable=*/1).waits());
  ASSERT_TRUE(manager_.ReturnSlab(kB, slab, lease).ok());
  manager_.Zeroed(slab);
  const auto grants = manager_.TakeGrants();
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].ticket, 2u);
}

TEST_F(SlabManagerTest, CancelledRequestLetsTheNextOneIn) {
  manager_.Zeroed(SlabId{0});
  Lease(&manager_, kA, 4, 1);
  Lease(&manager_, kB, 1, 2);
  EXPECT_FALSE(manager_.Cancel(3));
  EXPECT_TRUE(manager_.Cancel(1));
  const auto grants = manager_.TakeGrants();
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].ticket, 2u);
}

TEST_F(SlabManagerTest, OneEngineCannotReturnAnothersLease) {
  ZeroEverything();
  const SlabManager::Grant grant = *Lease(&manager_, kA, 1, 1).grant;
  EXPECT_EQ(manager_.Return(kB, grant.lease).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(manager_.HeldBy(kA).slabs, 1u);
}

TEST_F(SlabManagerTest, DeadEnginesSlabsStayItsOwnUntilReleased) {
  ZeroEverything();
  Lease(&manager_, kA, 3, 1);
  EXPECT_EQ(manager_.Quarantine(kA), 3u);
  EXPECT_EQ(manager_.HeldBy(kA).slabs, 3u);
  EXPECT_FALSE(manager_.Return(kA, LeaseId{1}).ok()) << "sent before it died";
  EXPECT_TRUE(Lease(&manager_, kB, 6, 2).refused());
  EXPECT_EQ(manager_.Release(kA).size(), 3u);
  EXPECT_EQ(manager_.zeroing_count(), 3u);
}

TEST_F(SlabManagerTest, DeathOfTheFirstInLineLetsTheNextOneIn) {
  for (uint32_t i = 0; i < 4; ++i) manager_.Zeroed(SlabId{i});
  Lease(&manager_, kA, 6, 1);
  Lease(&manager_, kB, 2, 2);
  manager_.Quarantine(kA);
  const auto grants = manager_.TakeGrants();
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].engine, kB);
}

TEST_F(SlabManagerTest, ViewGetsTheHighestFreeSlabThatItCanMap) {
  ZeroEverything();
  EXPECT_EQ(manager_.LeaseForView(kA, SlabId{2}), SlabId{1});
  EXPECT_EQ(manager_.LeaseForView(kA, SlabId{2}), SlabId{0});
  EXPECT_EQ(manager_.LeaseForView(kA, SlabId{2}), absl::nullopt);
  EXPECT_EQ(manager_.LeaseForView(kB, SlabId{kSlabs}), SlabId{kSlabs - 1});
}

TEST_F(SlabManagerTest, ViewDoesNotOvertakeAWaitingRequest) {
  manager_.Zeroed(SlabId{0});
  Lease(&manager_, kA, 2, 1);
  EXPECT_EQ(manager_.LeaseForView(kB, SlabId{kSlabs}), absl::nullopt);
}

TEST_F(SlabManagerTest, AskedBackSlabStaysLeasedUntilItIsReturned) {
  ZeroEverything();
  const SlabId slab = *manager_.LeaseForView(kA, SlabId{kSlabs});
  const LeaseId lease{manager_.word(slab).lease};
  EXPECT_TRUE(manager_.AskBack(slab));
  EXPECT_FALSE(manager_.AskBack(slab)) << "asked twice";
  EXPECT_EQ(manager_.HeldBy(kA).returning, 1u);
  EXPECT_EQ(manager_.free_count(), kSlabs - 1);
  EXPECT_TRUE(manager_.ReturnSlab(kA, slab, lease).ok());
  EXPECT_EQ(manager_.word(slab).state, SlabState::kZeroing);
  EXPECT_EQ(manager_.HeldBy(kA).slabs, 0u);
}

TEST_F(SlabManagerTest, ReturnNamesOwnerSlabAndLeaseOrNothingHappens) {
  ZeroEverything();
  const SlabId slab = *manager_.LeaseForView(kA, SlabId{kSlabs});
  const LeaseId lease{manager_.word(slab).lease};
  EXPECT_FALSE(manager_.ReturnSlab(kB, slab, lease).ok());
  EXPECT_FALSE(manager_.ReturnSlab(kA, SlabId{5}, lease).ok());
  EXPECT_FALSE(manager_.ReturnSlab(kA, slab, LeaseId{99}).ok());
  EXPECT_FALSE(manager_.ReturnSlab(kA, SlabId{4711}, lease).ok());
  ASSERT_TRUE(manager_.ReturnSlab(kA, slab, lease).ok());
  EXPECT_FALSE(manager_.ReturnSlab(kA, slab, lease).ok()) << "returned twice";
}

TEST_F(SlabManagerTest, WholeLeaseCannotBeReturnedSlabBySlab) {
  ZeroEverything();
  const SlabManager::Grant grant = *Lease(&manager_, kA, 1, 1).grant;
  EXPECT_FALSE(manager_.ReturnSlab(kA, grant.slabs[0], grant.lease).ok());
}

TEST_F(SlabManagerTest, DeadViewsSlabsCannotBeReturnedFromQuarantine) {
  ZeroEverything();
  const SlabId slab = *manager_.LeaseForView(kA, SlabId{kSlabs});
  const LeaseId lease{manager_.word(slab).lease};
  manager_.AskBack(slab);
  EXPECT_EQ(manager_.Quarantine(kA), 1u);
  EXPECT_FALSE(manager_.ReturnSlab(kA, slab, lease).ok());
  EXPECT_EQ(manager_.Release(kA).size(), 1u);
}

TEST_F(SlabManagerTest, WithdrawnSlabIsAbsentAndComesBackThroughZeroing) {
  ZeroEverything();
  EXPECT_TRUE(manager_.Withdraw(SlabId{7}));
  EXPECT_FALSE(manager_.Withdraw(SlabId{7}));
  EXPECT_EQ(manager_.free_count(), kSlabs - 1);
  EXPECT_EQ(manager_.word(SlabId{7}).state, SlabState::kAbsent);
  EXPECT_TRUE(manager_.Add(SlabId{7}));
  EXPECT_FALSE(manager_.Add(SlabId{7}));
  EXPECT_EQ(manager_.word(SlabId{7}).state, SlabState::kZeroing);
}

TEST_F(SlabManagerTest, SlabThatAWaitingRequestNeedsIsNotWithdrawn) {
  for (uint32_t i = 0; i < 4; ++i) manager_.Zeroed(SlabId{i});
  Lease(&manager_, kA, kSlabs, 1);
  EXPECT_FALSE(manager_.Withdraw(SlabId{0}));
}

TEST(SlabManagerGrowthTest, AbsentSlabsAreNoPartOfThePoolYet) {
  SlabManager manager(4, 2);
  EXPECT_EQ(manager.absent_count(), 2u);
  EXPECT_EQ(manager.word(SlabId{2}).state, SlabState::kAbsent);
  EXPECT_TRUE(Lease(&manager, kA, 3, 1).refused());
  manager.CheckInvariants();
}

// Random engines ask, return and die; random fills complete; slabs come and go.
class RandomHistory {
 public:
  static constexpr uint32_t kSlabs = 24;
  static constexpr uint32_t kEngines = 4;

  explicit RandomHistory(uint32_t seed) : random_(seed) {}

  void Step(uint64_t time) {
    switch (random_() % 14) {
      case 0:
      case 1:
      case 2:
        return Ask(time);
      case 3:
        return ReturnLease();
      case 4:
        if (random_() % 8 == 0) Die(AnyEngine());
        return;
      case 5:
      case 6:
        manager_.LeaseForView(
            AnyEngine(),
            SlabId{Random(kSlabs + 1)});  // or a number without a slab
        return;
      case 7:
        return AskBack();
      case 8:
        return ReturnSlab(SlabState::kReturning);
      case 9:
        return ReturnSlab(SlabState::kPartial);
      case 10:
        return Withdraw();
      case 11:
        return Add();
      default:
        ZeroOne();
    }
  }
  // Lets every engine die; the pool then has all of its slabs again.
  void End() {
    for (uint32_t e = 1; e <= kEngines; ++e) Die(EngineId{e});
    for (uint32_t i = 0; i < kSlabs; ++i) manager_.Add(SlabId{i});
    while (ZeroOne()) {
    }
  }
  void Check() {
    manager_.CheckInvariants();
    recorder_.Follow(&manager_);
  }
  uint32_t free_count() const { return manager_.free_count(); }

 private:
  uint32_t Random(uint32_t below) {
    return static_cast<uint32_t>(random_() % below);
  }
  EngineId AnyEngine() { return EngineId{1 + Random(kEngines)}; }
  // Returns the first slab in `state` at or after a random one; kSlabs if there
  // is none.
  uint32_t Find(SlabState state) {
    const uint32_t start = Random(kSlabs);
    for (uint32_t k = 0; k < kSlabs; ++k) {
      const uint32_t i = (start + k) % kSlabs;
      if (manager_.word(SlabId{i}).state == state) return i;
    }
    return kSlabs;
  }
  void Keep(const std::vector<SlabManager::Grant>& grants) {
    leases_.insert(leases_.end(), grants.begin(), grants.end());
  }

  void Ask(uint64_t time) {
    const auto outcome = Lease(&manager_, AnyEngine(), 1 + Random(6), time);
    if (outcome.grant) leases_.push_back(*outcome.grant);
  }
  void ReturnLease() {
    if (leases_.empty()) return;
    const size_t i = random_() % leases_.size();
    ASSERT_TRUE(manager_.Return(leases_[i].engine, leases_[i].lease).ok());
    leases_.erase(leases_.begin() + static_cast<ptrdiff_t>(i));
  }
  void Die(EngineId engine) {
    manager_.Quarantine(engine);
    Keep(manager_.TakeGrants());
    manager_.Release(engine);
    leases_.erase(
        std::remove_if(leases_.begin(), leases_.end(),
                       [&](const auto& l) { return l.engine == engine; }),
        leases_.end());
  }
  void AskBack() {
    const uint32_t i = Find(SlabState::kPartial);
    if (i == kSlabs) return;
    ASSERT_TRUE(manager_.AskBack(SlabId{i}));
  }
  void ReturnSlab(SlabState state) {
    const uint32_t i = Find(state);
    if (i == kSlabs) return;
    const SlabWord word = manager_.word(SlabId{i});
    ASSERT_TRUE(
        manager_
            .ReturnSlab(EngineId{word.engine}, SlabId{i}, LeaseId{word.lease})
            .ok());
  }
  void Withdraw() {
    const uint32_t i = Find(SlabState::kFree);
    if (i < kSlabs) manager_.Withdraw(SlabId{i});
  }
  void Add() {
    const uint32_t i = Find(SlabState::kAbsent);
    if (i == kSlabs) return;
    ASSERT_TRUE(manager_.Add(SlabId{i}));
    Keep(manager_.TakeGrants());
  }
  bool ZeroOne() {
    const uint32_t i = Find(SlabState::kZeroing);
    if (i < kSlabs) manager_.Zeroed(SlabId{i});
    Keep(manager_.TakeGrants());
    return i < kSlabs;
  }

  std::mt19937 random_;
  Recorder recorder_{kSlabs};
  SlabManager manager_{kSlabs, kSlabs};
  std::vector<SlabManager::Grant> leases_;
};

// After every step all invariants hold, and at the end nothing is lost.
TEST(SlabManagerPropertyTest, NoSlabIsLostOrSharedInRandomHistories) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomHistory history(seed);
  for (uint64_t step = 0; step < 20000; ++step) {
    ASSERT_NO_FATAL_FAILURE(history.Step(step)) << "step " << step;
    history.Check();
  }
  history.End();
  EXPECT_EQ(history.free_count(), RandomHistory::kSlabs);
}

}  // namespace
}  // namespace fineserve::slab

#include "daemon/slab/slab_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/types/variant.h"

namespace fineserve::slab {
namespace {

using abi::SlabState;
using abi::SlabWord;

constexpr EngineId kA{1};
constexpr EngineId kB{2};

class Recorder : public SlabObserver {
 public:
  explicit Recorder(uint32_t slabs) : words(slabs) {}
  void OnSlabChange(SlabId slab, SlabWord word) override {
    SlabWord& now = words[Number(slab)];
    // Zero before lease: nothing becomes FREE but what was being zeroed.
    if (word.state == SlabState::kFree) {
      EXPECT_EQ(now.state, SlabState::kZeroing);
    }
    // One owner: a leased slab changes hands only through zeroing.
    if (now.engine != 0 && word.engine != 0) {
      EXPECT_EQ(now.engine, word.engine);
    }
    now = word;
  }
  std::vector<SlabWord> words;
};

class SlabManagerTest : public ::testing::Test {
 protected:
  void ZeroEverything() {
    for (uint32_t i = 0; i < kSlabs; ++i) {
      if (recorder_.words[i].state == SlabState::kZeroing) {
        manager_.Zeroed(SlabId{i});
      }
    }
  }
  void TearDown() override { manager_.CheckInvariants(); }

  static constexpr uint32_t kSlabs = 8;
  Recorder recorder_{kSlabs};
  SlabManager manager_{kSlabs, &recorder_};
};

TEST_F(SlabManagerTest, NothingIsLeasedBeforeTheFirstZeroFill) {
  EXPECT_TRUE(
      absl::holds_alternative<SlabManager::Waiting>(manager_.Lease(kA, 2, 7)));
  EXPECT_TRUE(manager_.Zeroed(SlabId{3}).empty());
  const auto grants = manager_.Zeroed(SlabId{1});
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].ticket, 7u);
  EXPECT_EQ(grants[0].slabs, (std::vector<SlabId>{SlabId{1}, SlabId{3}}));
}

TEST_F(SlabManagerTest, LeaseAfterLastSlabIsExhaustedAndNamesWhatIsLeft) {
  ZeroEverything();
  manager_.Lease(kA, 6, 1);
  const auto outcome = manager_.Lease(kB, 3, 2);
  ASSERT_TRUE(absl::holds_alternative<SlabManager::Exhausted>(outcome));
  EXPECT_EQ(absl::get<SlabManager::Exhausted>(outcome).available, 2u);
}

TEST_F(SlabManagerTest, ReturnedSlabsAreZeroedBeforeTheyAreLeasedAgain) {
  ZeroEverything();
  const auto grant =
      absl::get<SlabManager::Grant>(manager_.Lease(kA, kSlabs, 1));
  ASSERT_TRUE(manager_.Return(kA, grant.lease).ok());
  EXPECT_EQ(manager_.free_count(), 0u);
  EXPECT_TRUE(
      absl::holds_alternative<SlabManager::Waiting>(manager_.Lease(kB, 1, 2)));
}

TEST_F(SlabManagerTest, NobodyOvertakesAWaitingRequest) {
  for (uint32_t i = 0; i < 3; ++i) manager_.Zeroed(SlabId{i});
  EXPECT_TRUE(
      absl::holds_alternative<SlabManager::Waiting>(manager_.Lease(kA, 5, 1)));
  EXPECT_TRUE(
      absl::holds_alternative<SlabManager::Waiting>(manager_.Lease(kB, 1, 2)));
}

TEST_F(SlabManagerTest, WaitingRequestsAreNeverPromisedMoreThanWillCome) {
  EXPECT_TRUE(
      absl::holds_alternative<SlabManager::Waiting>(manager_.Lease(kA, 5, 1)));
  EXPECT_TRUE(absl::holds_alternative<SlabManager::Exhausted>(
      manager_.Lease(kB, 4, 2)));
}

TEST_F(SlabManagerTest, RequestWaitsForWhatTheCallerWillHaveBack) {
  ZeroEverything();
  const SlabId slab = *manager_.LeaseForView(kB, SlabId{kSlabs});
  const LeaseId lease{recorder_.words[Number(slab)].lease};
  EXPECT_TRUE(absl::holds_alternative<SlabManager::Exhausted>(
      manager_.Lease(kA, kSlabs, 1, /*reclaimable=*/0)));
  EXPECT_TRUE(absl::holds_alternative<SlabManager::Waiting>(
      manager_.Lease(kA, kSlabs, 2, /*reclaimable=*/1)));
  ASSERT_TRUE(manager_.ReturnSlab(kB, slab, lease).ok());
  const auto grants = manager_.Zeroed(slab);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].ticket, 2u);
}

TEST_F(SlabManagerTest, CancelledRequestLetsTheNextOneIn) {
  manager_.Zeroed(SlabId{0});
  manager_.Lease(kA, 4, 1);
  manager_.Lease(kB, 1, 2);
  EXPECT_FALSE(manager_.Cancel(3));
  EXPECT_TRUE(manager_.Cancel(1));
  const auto grants = manager_.TakeGrants();
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].ticket, 2u);
}

TEST_F(SlabManagerTest, OneEngineCannotReturnAnothersLease) {
  ZeroEverything();
  const auto grant = absl::get<SlabManager::Grant>(manager_.Lease(kA, 1, 1));
  EXPECT_EQ(manager_.Return(kB, grant.lease).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(manager_.HeldBy(kA).slabs, 1u);
}

TEST_F(SlabManagerTest, DeadEnginesSlabsStayItsOwnUntilReleased) {
  ZeroEverything();
  manager_.Lease(kA, 3, 1);
  EXPECT_EQ(manager_.Quarantine(kA), 3u);
  EXPECT_EQ(manager_.HeldBy(kA).slabs, 3u);
  EXPECT_TRUE(absl::holds_alternative<SlabManager::Exhausted>(
      manager_.Lease(kB, 6, 2)));
  EXPECT_EQ(manager_.Release(kA).size(), 3u);
  EXPECT_EQ(manager_.zeroing_count(), 3u);
}

TEST_F(SlabManagerTest, DeathOfTheFirstInLineLetsTheNextOneIn) {
  for (uint32_t i = 0; i < 4; ++i) manager_.Zeroed(SlabId{i});
  manager_.Lease(kA, 6, 1);
  manager_.Lease(kB, 2, 2);
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
  manager_.Lease(kA, 2, 1);
  EXPECT_EQ(manager_.LeaseForView(kB, SlabId{kSlabs}), absl::nullopt);
}

TEST_F(SlabManagerTest, AskedBackSlabStaysLeasedUntilItIsReturned) {
  ZeroEverything();
  const SlabId slab = *manager_.LeaseForView(kA, SlabId{kSlabs});
  const LeaseId lease{recorder_.words[Number(slab)].lease};
  EXPECT_TRUE(manager_.AskBack(slab));
  EXPECT_FALSE(manager_.AskBack(slab)) << "asked twice";
  EXPECT_EQ(manager_.HeldBy(kA).returning, 1u);
  EXPECT_EQ(manager_.free_count(), kSlabs - 1);
  EXPECT_TRUE(manager_.ReturnSlab(kA, slab, lease).ok());
  EXPECT_EQ(recorder_.words[Number(slab)].state, SlabState::kZeroing);
  EXPECT_EQ(manager_.HeldBy(kA).slabs, 0u);
}

TEST_F(SlabManagerTest, ReturnNamesOwnerSlabAndLeaseOrNothingHappens) {
  ZeroEverything();
  const SlabId slab = *manager_.LeaseForView(kA, SlabId{kSlabs});
  const LeaseId lease{recorder_.words[Number(slab)].lease};
  EXPECT_FALSE(manager_.ReturnSlab(kB, slab, lease).ok());
  EXPECT_FALSE(manager_.ReturnSlab(kA, SlabId{5}, lease).ok());
  EXPECT_FALSE(manager_.ReturnSlab(kA, slab, LeaseId{99}).ok());
  EXPECT_FALSE(manager_.ReturnSlab(kA, SlabId{4711}, lease).ok());
  ASSERT_TRUE(manager_.ReturnSlab(kA, slab, lease).ok());
  EXPECT_FALSE(manager_.ReturnSlab(kA, slab, lease).ok()) << "given back twice";
}

TEST_F(SlabManagerTest, WholeLeaseCannotBeReturnedSlabBySlab) {
  ZeroEverything();
  const auto grant = absl::get<SlabManager::Grant>(manager_.Lease(kA, 1, 1));
  EXPECT_FALSE(manager_.ReturnSlab(kA, grant.slabs[0], grant.lease).ok());
}

TEST_F(SlabManagerTest, DeadViewsSlabsCannotBeReturnedFromQuarantine) {
  ZeroEverything();
  const SlabId slab = *manager_.LeaseForView(kA, SlabId{kSlabs});
  const LeaseId lease{recorder_.words[Number(slab)].lease};
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
  EXPECT_EQ(recorder_.words[7].state, SlabState::kAbsent);
  EXPECT_TRUE(manager_.Add(SlabId{7}));
  EXPECT_FALSE(manager_.Add(SlabId{7}));
  EXPECT_EQ(recorder_.words[7].state, SlabState::kZeroing);
}

TEST_F(SlabManagerTest, SlabThatAWaitingRequestNeedsIsNotWithdrawn) {
  for (uint32_t i = 0; i < 4; ++i) manager_.Zeroed(SlabId{i});
  manager_.Lease(kA, kSlabs, 1);
  EXPECT_FALSE(manager_.Withdraw(SlabId{0}));
}

TEST(SlabManagerGrowthTest, AbsentSlabsAreNoPartOfThePoolYet) {
  Recorder recorder(4);
  SlabManager manager(4, 2, &recorder);
  EXPECT_EQ(manager.absent_count(), 2u);
  EXPECT_EQ(recorder.words[2].state, SlabState::kAbsent);
  EXPECT_TRUE(
      absl::holds_alternative<SlabManager::Exhausted>(manager.Lease(kA, 3, 1)));
  manager.CheckInvariants();
}

// Random engines ask, return, die; random fills complete. After every step all
// invariants hold, and at the end nothing is lost.
TEST(SlabManagerPropertyTest, NoSlabIsLostOrSharedInRandomHistories) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr uint32_t kSlabs = 24;
  Recorder recorder(kSlabs);
  SlabManager manager(kSlabs, &recorder);
  std::vector<SlabManager::Grant> leases;
  const auto keep = [&](std::vector<SlabManager::Grant> grants) {
    leases.insert(leases.end(), grants.begin(), grants.end());
  };
  const auto any_engine = [&] {
    return EngineId{1 + static_cast<uint32_t>(random() % 4)};
  };
  const auto zero_one = [&] {
    const uint32_t start = random() % kSlabs;
    for (uint32_t k = 0; k < kSlabs; ++k) {
      const uint32_t i = (start + k) % kSlabs;
      if (recorder.words[i].state != SlabState::kZeroing) continue;
      keep(manager.Zeroed(SlabId{i}));
      return true;
    }
    return false;
  };
  const auto die = [&](EngineId engine) {
    manager.Quarantine(engine);
    keep(manager.TakeGrants());
    manager.Release(engine);
    leases.erase(
        std::remove_if(leases.begin(), leases.end(),
                       [&](const auto& l) { return l.engine == engine; }),
        leases.end());
  };
  // A slab in `state`, from a random place on; kSlabs if there is none.
  const auto find = [&](SlabState state) {
    const uint32_t start = random() % kSlabs;
    for (uint32_t k = 0; k < kSlabs; ++k) {
      const uint32_t i = (start + k) % kSlabs;
      if (recorder.words[i].state == state) return i;
    }
    return kSlabs;
  };
  const auto return_slab = [&](SlabState state) {
    const uint32_t i = find(state);
    if (i == kSlabs) return;
    const SlabWord word = recorder.words[i];
    ASSERT_TRUE(
        manager
            .ReturnSlab(EngineId{word.engine}, SlabId{i}, LeaseId{word.lease})
            .ok());
  };
  for (uint64_t step = 0; step < 20000; ++step) {
    switch (random() % 14) {
      case 0:
      case 1:
      case 2: {
        const auto outcome =
            manager.Lease(any_engine(), 1 + random() % 6, step);
        if (const auto* grant = absl::get_if<SlabManager::Grant>(&outcome)) {
          leases.push_back(*grant);
        }
        break;
      }
      case 3: {
        if (leases.empty()) break;
        const size_t i = random() % leases.size();
        ASSERT_TRUE(manager.Return(leases[i].engine, leases[i].lease).ok());
        leases.erase(leases.begin() + static_cast<ptrdiff_t>(i));
        break;
      }
      case 4:
        if (random() % 8 == 0) die(any_engine());
        break;
      case 5:
      case 6:
        manager.LeaseForView(
            any_engine(),
            SlabId{static_cast<uint32_t>(random() % (kSlabs + 1))});
        break;
      case 7:
        if (const uint32_t i = find(SlabState::kPartial); i < kSlabs) {
          ASSERT_TRUE(manager.AskBack(SlabId{i}));
        }
        break;
      case 8:
        return_slab(SlabState::kReturning);
        break;
      case 9:
        return_slab(SlabState::kPartial);
        break;
      case 10:
        if (const uint32_t i = find(SlabState::kFree); i < kSlabs) {
          manager.Withdraw(SlabId{i});
        }
        break;
      case 11:
        if (const uint32_t i = find(SlabState::kAbsent); i < kSlabs) {
          ASSERT_TRUE(manager.Add(SlabId{i}));
          keep(manager.TakeGrants());
        }
        break;
      default:
        zero_one();
    }
    manager.CheckInvariants();
  }
  for (uint32_t engine = 1; engine <= 4; ++engine) die(EngineId{engine});
  for (uint32_t i = 0; i < kSlabs; ++i) manager.Add(SlabId{i});
  while (zero_one()) {
  }
  EXPECT_EQ(manager.free_count(), kSlabs);
}

}  // namespace
}  // namespace fineserve::slab

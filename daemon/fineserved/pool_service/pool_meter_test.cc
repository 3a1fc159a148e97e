#include "daemon/fineserved/pool_service/pool_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace fineserve::server {
namespace {

using abi::SlabState;
using abi::SlabWord;
using slab::EngineId;
using slab::SlabId;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr uint64_t kMs = 1'000'000;

class PoolMeterTest : public ::testing::Test {
 protected:
  void At(uint64_t ms, uint32_t slab, SlabState state, uint32_t engine = 0) {
    meter_.Saw({SlabId{slab}, SlabWord{state, engine, engine}}, ms * kMs);
  }
  void Join(const std::string& name, pid_t pid) {
    ASSERT_TRUE(pool_.Join(name, 0, pid, 0).ok());
    meter_.SawEngines(pool_.TakeEffects().records, pool_);
  }

  slab::PoolState pool_{slab::PoolGeometry{4096, 2, 8}, 8};
  PoolMeter meter_{pool_, 0};
};

TEST_F(PoolMeterTest, TimesTheWayFromAskingBackToZeroed) {
  At(1, 0, SlabState::kFree);
  At(2, 0, SlabState::kPartial, 1);
  At(10, 0, SlabState::kReturning, 1);
  At(35, 0, SlabState::kZeroing);
  At(36, 0, SlabState::kFree);
  EXPECT_EQ(meter_.ask_back().count(), 1u);
  EXPECT_NEAR(meter_.ask_back().sum_s, 0.025, 1e-9);
  // The first fill of the pool, too.
  EXPECT_EQ(meter_.zeroing().count(), 2u);
  EXPECT_NEAR(meter_.zeroing().sum_s, 0.002, 1e-9);
}

TEST_F(PoolMeterTest, EndOfADeadEngineIsNoAnswer) {
  At(1, 0, SlabState::kFree);
  At(2, 0, SlabState::kPartial, 1);
  At(3, 0, SlabState::kReturning, 1);
  At(4, 0, SlabState::kQuarantined, 1);
  At(900, 0, SlabState::kZeroing);
  EXPECT_EQ(meter_.ask_back().count(), 0u);
}

TEST_F(PoolMeterTest, ASlabChangesHandsWhenAnotherEngineGetsIt) {
  At(1, 0, SlabState::kFree);
  At(2, 0, SlabState::kFull, 1);  // never leased before
  At(3, 0, SlabState::kZeroing);
  At(4, 0, SlabState::kFree);
  At(5, 0, SlabState::kPartial, 1);  // the same again
  At(6, 0, SlabState::kZeroing);
  At(7, 0, SlabState::kFree);
  EXPECT_EQ(meter_.hand_overs(), 0u);
  At(8, 0, SlabState::kPartial, 2);
  EXPECT_EQ(meter_.hand_overs(), 1u);
}

TEST_F(PoolMeterTest, CountsEachStartOfAnEngineOnce) {
  Join("a", 10);
  Join("a", 11);  // another member of it
  Join("b", 12);
  pool_.Exited(10, 0);
  pool_.Exited(11, 0);
  Join("a", 13);
  EXPECT_THAT(meter_.starts(), ElementsAre(Pair("a", 2), Pair("b", 1)));
}

TEST_F(PoolMeterTest, NamesBeyondTheLimitCountTogether) {
  for (pid_t i = 0; i < static_cast<pid_t>(PoolMeter::kMostNames) + 3; ++i) {
    Join(absl::StrCat("engine", i), 100 + i);
    pool_.Exited(100 + i, 0);
  }
  Join("engine0", 1);
  EXPECT_EQ(meter_.starts().size(), PoolMeter::kMostNames + 1);
  EXPECT_EQ(meter_.starts().at("other"), 3u);
  EXPECT_EQ(meter_.starts().at("engine0"), 2u);
}

}  // namespace
}  // namespace fineserve::server

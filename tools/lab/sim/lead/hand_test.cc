#include "tools/lab/sim/lead/hand.h"

#include <gtest/gtest.h>

#include <memory>

#include "daemon/contract/wire/message.h"

namespace fineserve::sim {
namespace {

constexpr Micros kSecond = 1'000'000;

// The GPU has room for the weights of one engine beside its pool, and places
// for two.
class HandTest : public testing::Test {
 protected:
  HandTest() {
    GpuSetup gpu;
    const sched::Profile profile{8000, 40, 60};
    gpu.geometry = {2 << 20, 1, 8};
    gpu.models = {{"m", 1'000'000, 0, 2048, 64, profile}};
    for (const char* name : {"a", "b"}) {
      EngineSetup engine;
      engine.name = name;
      engine.step_time = {profile};
      engine.format = {1, 16 * 4096, 16};
      engine.longest_tokens = 1024;
      engine.runs = false;
      gpu.engines.push_back(engine);
      PlaceSetup place;
      place.engine.name = name;
      place.engine.is_place = true;
      place.place = static_cast<uint32_t>(setup_.places.size());
      place.weight_bytes = place.beside_bytes = 100;
      setup_.places.push_back(place);
    }
    gpus_.push_back(*Gpu::Create(gpu));
    setup_.memory_bytes = 250;
    setup_.pool_bytes = 100;
    setup_.times = {2 * kSecond, 100, kSecond};  // 3 s with its weights
    setup_.beside_bytes = {0};
  }

  wire::PlanT PlanOf(uint64_t number, bool a, bool b) const {
    wire::PlanT plan;
    plan.number = number;
    for (const auto& [name, runs] : {std::pair("a", a), {"b", b}}) {
      auto place = std::make_unique<wire::PlannedPlaceT>();
      place->engine = name;
      place->state = runs ? wire::PlaceState::kServe : wire::PlaceState::kOff;
      plan.places.push_back(std::move(place));
    }
    return plan;
  }

  PlanningSetup setup_;
  Gpus gpus_;
};

// The engine's context stays beside the pool while the engine rests.
TEST_F(HandTest, EngineThatRestsComesBackUnlessThePlanHasItEnd) {
  setup_.places[0].engine.may_evict = true;
  setup_.places[0].context_bytes = 60;
  for (const bool ends : {false, true}) {
    SCOPED_TRACE(ends);
    Hand hand(setup_, &gpus_);
    Micros now = 0;
    uint64_t number = 0;
    const auto follows = [&](bool a, bool b) {
      wire::PlanT plan = PlanOf(++number, a, b);
      plan.places[0]->no_rest = ends && !a;
      for (int s = 0; s < 5; ++s, now += kSecond) hand.Turn(&plan, now);
      return hand.HasDone(number);
    };
    EXPECT_FALSE(hand.IsHere("a")) << "it has not started yet";
    EXPECT_TRUE(follows(true, false));
    EXPECT_TRUE(hand.IsHere("a"));
    EXPECT_TRUE(follows(false, false));
    EXPECT_EQ(hand.IsHere("a"), !ends);
    EXPECT_EQ(follows(false, true), ends) << "a's context is in b's way";
    EXPECT_TRUE(follows(false, false));
    EXPECT_TRUE(follows(true, false));
    EXPECT_TRUE(follows(false, false));
  }
}

TEST_F(HandTest, EngineServesOnceItsWeightsHaveCome) {
  Hand hand(setup_, &gpus_);
  const wire::PlanT plan = PlanOf(1, true, false);
  hand.Turn(&plan, kSecond);
  hand.Turn(&plan, 3 * kSecond);
  EXPECT_FALSE(gpus_[0]->Runs(0));
  EXPECT_FALSE(hand.HasDone(1));
  hand.Turn(&plan, 4 * kSecond);
  EXPECT_TRUE(gpus_[0]->Runs(0));
  EXPECT_TRUE(hand.HasDone(1));
  EXPECT_FALSE(hand.HasDone(2)) << "it has not heard of it";
}

TEST_F(HandTest, EngineThatRestsOffTheGpuHasOnlyItsWeightsToBringBack) {
  setup_.places[0].engine.may_evict = true;
  setup_.times.back_per_s = 1'000;  // 0.1 s
  Hand hand(setup_, &gpus_);
  const wire::PlanT on = PlanOf(1, true, false), off = PlanOf(2, false, false);
  const wire::PlanT again = PlanOf(3, true, false);
  hand.Turn(&on, kSecond);
  hand.Turn(&on, 3 * kSecond);
  EXPECT_FALSE(gpus_[0]->Runs(0)) << "it has to start the first time";
  hand.Turn(&on, 4 * kSecond);
  for (Micros s = 5; s < 8; ++s) hand.Turn(&off, s * kSecond);
  EXPECT_FALSE(gpus_[0]->Runs(0));
  hand.Turn(&again, 8 * kSecond);
  hand.Turn(&again, 8 * kSecond + 100'000);
  EXPECT_TRUE(gpus_[0]->Runs(0));
}

TEST_F(HandTest, EngineThatDoesNotFitWaitsUntilTheOtherOneIsGone) {
  Hand hand(setup_, &gpus_);
  const wire::PlanT first = PlanOf(1, true, false);
  for (Micros s = 1; s < 6; ++s) hand.Turn(&first, s * kSecond);
  const wire::PlanT second = PlanOf(2, false, true);
  for (Micros s = 6; s < 12; ++s) hand.Turn(&second, s * kSecond);
  EXPECT_FALSE(gpus_[0]->Runs(0));
  EXPECT_TRUE(gpus_[0]->Runs(1));
  EXPECT_EQ(hand.failed_starts(), 1u) << "the first one takes 1 s to end";
}

}  // namespace
}  // namespace fineserve::sim

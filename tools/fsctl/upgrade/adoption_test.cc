#include "tools/fsctl/upgrade/adoption.h"

#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

using abi::SlabState;
using abi::SlabWord;

// Engine 1 holds slab 0 whole under lease 1, engine 2 holds slabs 1 and 2 in
// its view; slab 3 is free.
class AdoptionTest : public ::testing::Test {
 protected:
  AdoptionTest() {
    left_.epoch = 7;
    left_.last_lease = 3;
    left_.slabs.resize(4);
    left_.slabs[0].word = {SlabState::kFull, 1, 1};
    left_.slabs[1].word = {SlabState::kPartial, 2, 2};
    left_.slabs[2].word = {SlabState::kReturning, 2, 3};
    left_.engines.push_back(Engine(1, 101));
    left_.engines.push_back(Engine(2, 102));
    left_.engines[1].view.state = abi::ViewState::kActive;
    found_ = left_;
  }
  static abi::EngineSnapshot Engine(uint32_t id, uint32_t pid) {
    abi::EngineSnapshot engine;
    engine.id = id;
    engine.state = abi::EngineState::kAlive;
    engine.name = "e";
    engine.member_pids = {pid};
    engine.member_images = {1};
    return engine;
  }
  Adoption Compare() {
    return CompareTables(
        left_, found_, [this](uint32_t pid, uint64_t) { return pid != dead_; });
  }
  std::string Problem() {
    const Adoption adoption = Compare();
    return adoption.problems.empty() ? "" : adoption.problems[0];
  }

  abi::TableSnapshot left_, found_;
  uint32_t dead_ = 0;
};

TEST_F(AdoptionTest, UnchangedEnginesAreCounted) {
  const Adoption adoption = Compare();
  EXPECT_TRUE(adoption.problems.empty());
  EXPECT_EQ(adoption.engines, 2u);
  EXPECT_EQ(adoption.slabs, 3u);
}

TEST_F(AdoptionTest, SlabsThatChangeHandsAreFine) {
  found_.slabs[2].word = {SlabState::kPartial, 1, 4};
  found_.counters.slabs_returned = 1;
  EXPECT_EQ(Problem(), "");
  found_.slabs[0].word = {SlabState::kZeroing, 0, 0};
  EXPECT_EQ(Problem(), "");
}

TEST_F(AdoptionTest, SlabsOfADeadEngineMayBeQuarantined) {
  dead_ = 101;
  found_.slabs[0].word.state = SlabState::kQuarantined;
  found_.engines.erase(found_.engines.begin());
  EXPECT_EQ(Problem(), "");
  EXPECT_EQ(Compare().engines, 1u);
}

TEST_F(AdoptionTest, NewPoolIsFound) {
  found_.epoch = 8;
  EXPECT_EQ(Problem(), "the daemon began with a new pool");
}

TEST_F(AdoptionTest, EngineThatIsNotKnownOrTakenForDeadIsFound) {
  found_.engines[1].state = abi::EngineState::kQuarantined;
  EXPECT_NE(Problem().find("takes it for dead"), std::string::npos);
  found_.engines.pop_back();
  EXPECT_NE(Problem().find("does not know it"), std::string::npos);
}

TEST_F(AdoptionTest, SlabThatIsTakenFromItsEngineIsFound) {
  found_.slabs[1].word = {SlabState::kFree, 0, 0};
  EXPECT_NE(Problem().find("had not returned"), std::string::npos);
}

TEST_F(AdoptionTest, SlabThatChangesHandsByAnOldLeaseIsFound) {
  found_.slabs[0].word = {SlabState::kFull, 2, 2};
  EXPECT_NE(Problem().find("without a new lease"), std::string::npos);
}

TEST_F(AdoptionTest, SlabOfALivingEngineInQuarantineIsFound) {
  found_.slabs[0].word.state = SlabState::kQuarantined;
  EXPECT_NE(Problem().find("is quarantined"), std::string::npos);
}

TEST_F(AdoptionTest, SlabWithoutMemoryIsFound) {
  found_.slabs[0].word = {SlabState::kAbsent, 0, 0};
  EXPECT_NE(Problem().find("has no memory"), std::string::npos);
}

}  // namespace
}  // namespace fineserve::fsctl

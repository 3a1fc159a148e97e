// Engines that span two GPUs while a rank of one is stopped, or the daemon of
// one GPU is dead. Each run stops a rank once; FINESERVE_STALLS sets another
// number.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tests/integration/ranks/group_site.h"
#include "tools/lab/process/from_environment.h"

namespace fineserve::integration {
namespace {

using std::chrono::milliseconds;

class GroupStallTest : public GroupSite {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GroupSite::SetUp());
    if (IsSkipped()) return;
    first_ = StartGroup("0,1");
    second_ = StartGroup("1,0");
    StartPlain();
    ASSERT_TRUE(Moves(first_.get()));
    ASSERT_TRUE(Moves(second_.get()));
  }

  // Stops a rank for a while. The stopped engine keeps its slabs, and the
  // others continue without them.
  void Stall(size_t rank, milliseconds length) {
    first_->SignalRank(rank, SIGSTOP);
    std::this_thread::sleep_for(milliseconds(100));  // in the middle of a step
    uint64_t before[kGpus];
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      before[gpu] = SlabsHeld(gpu, first_->name());
    }
    const int64_t steps = second_->Stat("steps");
    std::this_thread::sleep_for(length);
    EXPECT_TRUE(Eventually([&] { return second_->Stat("steps") > steps + 20; }))
        << second_->parent().Stderr();
    EXPECT_TRUE(Moves(second_.get()));
    EXPECT_TRUE(plain_->alive()) << plain_->ReadAll() << plain_->Stderr();
    // Slabs that the engine is asked for count as held until it returns them.
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      EXPECT_GE(SlabsHeld(gpu, first_->name()), before[gpu] > 0 ? 1u : 0u);
    }
    first_->SignalRank(rank, SIGCONT);
    EXPECT_TRUE(Moves(first_.get()));
  }

  static void ExpectEnd(GroupEngine* group) {
    EXPECT_EQ(group->parent().Ask("exit"), "ok exit");
    EXPECT_EQ(group->parent().Wait(), 0) << group->parent().Stderr();
  }

  std::unique_ptr<GroupEngine> first_, second_;
};

TEST_F(GroupStallTest, StoppedRankKeepsItsSlabsAndStopsNoOther) {
  const int stalls = process::FromEnvironment("FINESERVE_STALLS", 1);
  for (int i = 0; i < stalls; ++i) {
    const auto length =
        stalls == 1 ? milliseconds(3000) : milliseconds(500 + random_() % 2500);
    Stall((i + 1) % kGpus, length);
    ASSERT_FALSE(HasFailure()) << "stall " << i;
  }
  ExpectEnd(first_.get());
  ExpectEnd(second_.get());
}

// The spanning engines serve with what they hold and get nothing new. The GPU
// whose daemon lives continues to serve others.
TEST_F(GroupStallTest, DeadDaemonLeavesLeasesAndGivesNothingNew) {
  daemons_[1]->EndBy(SIGKILL);
  std::this_thread::sleep_for(milliseconds(500));
  GroupEngine* const groups[] = {first_.get(), second_.get()};
  int64_t gained[2], steps[2];
  for (int i = 0; i < 2; ++i) {
    gained[i] = groups[i]->Stat("gained");
    steps[i] = groups[i]->Stat("steps");
  }
  std::this_thread::sleep_for(milliseconds(2000));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(groups[i]->Stat("gained"), gained[i]);
    EXPECT_GT(groups[i]->Stat("steps"), steps[i]);
  }
  EXPECT_TRUE(plain_->alive()) << plain_->ReadAll() << plain_->Stderr();
  plain_->EndBy(SIGKILL);
  const uint64_t granted = TableOf(0).counters.leases_granted;
  StartPlain();
  EXPECT_TRUE(Eventually([&] {
    return TableOf(0).counters.leases_granted > granted;
  })) << "another engine in its place is leased slabs";
  // Engines that start now get the GPU that is still served, and the new
  // daemon's GPU.
  ExpectEnd(first_.get());
  ExpectEnd(second_.get());
  ASSERT_NO_FATAL_FAILURE(StartPool(1));
  const auto third = StartGroup("0,1");
  EXPECT_TRUE(Moves(third.get()));
  ExpectEnd(third.get());
}

}  // namespace
}  // namespace fineserve::integration

// Repeats kill -9 of a rank, of the process that runs the block pool, or of a
// whole engine that spans two GPUs, at any moment of its life, while others
// serve. No slab is lost on either GPU, no engine sees another's bytes, and
// none ends because another one did. Each run of the tests has a few kills;
// FINESERVE_KILLS sets another number.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>

#include "tests/integration/ranks/group_site.h"
#include "tools/lab/process/from_environment.h"

namespace fineserve::integration {
namespace {

class GroupDeathTest : public GroupSite {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GroupSite::SetUp());
    if (IsSkipped()) return;
    for (size_t i = 0; i < 2; ++i) groups_[i] = LaunchGroup(kOrders[i]);
    for (const auto& group : groups_) {
      EXPECT_TRUE(group->AwaitReady()) << group->parent().Stderr();
    }
    StartPlain();
  }

  void Kill() {
    const uint32_t what = random_() % 8;
    if (what == 7) return KillPlain();
    auto& group = groups_[random_() % 2];
    usleep(random_() % 100'000);
    if (what < 3) {
      ++rank_kills_;
      KillRank(group.get());
    } else if (what < 5) {
      ++parent_kills_;
      group->parent().Signal(SIGKILL);
    } else {
      ++whole_kills_;
      KillWhole(group.get());
    }
    EXPECT_TRUE(group->EventuallyEnds()) << group->parent().Stderr();
    ASSERT_TRUE(EventuallyHoldsNothing(group->name()))
        << SlabsHeld(0, group->name()) << " and " << SlabsHeld(1, group->name())
        << daemons_[0]->Stderr() << daemons_[1]->Stderr();
    Refill(&group);
  }

  // The others end by themselves.
  void KillRank(GroupEngine* group) {
    group->SignalRank(random_() % kGpus, SIGKILL);
    EXPECT_EQ(group->parent().Wait(), kRankEnded) << group->parent().Stderr();
  }
  void KillWhole(GroupEngine* group) {
    const size_t first = random_() % 3;
    for (size_t i = 0; i < 3; ++i) {
      const size_t which = (first + i) % 3;
      if (which == 2) {
        group->parent().Signal(SIGKILL);
      } else {
        group->SignalRank(which, SIGKILL);
      }
    }
  }
  void KillPlain() {
    ++plain_kills_;
    plain_->EndBy(SIGKILL);
    ASSERT_TRUE(EventuallyHoldsNothing(plain_name_));
    StartPlain();
  }

  // Starts another engine in its place, sometimes after an engine that dies
  // while it starts.
  void Refill(std::unique_ptr<GroupEngine>* group) {
    const char* order = kOrders[group - groups_];
    if (random_() % 4 == 0) {
      ++start_kills_;
      auto starting = LaunchGroup(order);
      EXPECT_TRUE(starting->FindRanks());
      usleep(random_() % 150'000);
      if (random_() % 2 == 0) {
        starting->parent().Signal(SIGKILL);
      } else {
        KillWhole(starting.get());
      }
      EXPECT_TRUE(starting->EventuallyEnds());
      ASSERT_TRUE(EventuallyHoldsNothing(starting->name()));
    }
    *group = StartGroup(order);
  }

  void ExpectAllServe() {
    ASSERT_TRUE(plain_->alive()) << plain_->ReadAll() << plain_->Stderr();
    for (auto& group : groups_) {
      ASSERT_GE(group->Stat("steps"), 0) << group->parent().Stderr();
    }
  }

  static constexpr int kRankEnded = 6;  // group_engine's exit code
  static constexpr const char* kOrders[] = {"0,1", "1,0"};
  std::unique_ptr<GroupEngine> groups_[2];
  int rank_kills_ = 0, parent_kills_ = 0, whole_kills_ = 0, plain_kills_ = 0;
  int start_kills_ = 0;
};

TEST_F(GroupDeathTest, NoSlabIsLostOnEitherGpuAndSlabsGoOnMoving) {
  SCOPED_TRACE(testing::Message() << "FINESERVE_SEED=" << seed_);
  const int kills = process::FromEnvironment("FINESERVE_KILLS", 12);
  for (auto& group : groups_) ASSERT_TRUE(Moves(group.get()));
  for (int i = 0; i < kills; ++i) {
    ASSERT_NO_FATAL_FAILURE(Kill()) << "kill " << i;
    ASSERT_NO_FATAL_FAILURE(ExpectAllServe()) << "kill " << i;
    if (i % 3 == 2) {
      for (auto& group : groups_) ASSERT_TRUE(Moves(group.get()));
    }
  }
  printf(
      "killed: %d ranks, %d parents, %d whole engines, %d plain engines, "
      "%d engines that started; %d engines in all\n",
      rank_kills_, parent_kills_, whole_kills_, plain_kills_, start_kills_,
      started_);
  for (auto& group : groups_) {
    printf("%s: %s\n", group->name().c_str(),
           group->parent().Ask("stats").c_str());
    EXPECT_EQ(group->parent().Ask("exit"), "ok exit");
    EXPECT_EQ(group->parent().Wait(), 0) << group->parent().Stderr();
  }
  plain_->EndBy(SIGKILL);
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    const abi::CounterSnapshot counters = TableOf(gpu).counters;
    printf(
        "GPU %d: %lu leases, %lu asked back, %lu returned, %lu quarantined\n",
        gpu, counters.leases_granted, counters.slabs_asked_back,
        counters.slabs_returned, counters.slabs_quarantined);
    EXPECT_GT(counters.slabs_returned, 0u);
    EXPECT_GT(counters.slabs_asked_back, 0u) << "nothing was contended";
  }
  EXPECT_TRUE(EventuallyAllFree())
      << daemons_[0]->Stderr() << daemons_[1]->Stderr();
}

}  // namespace
}  // namespace fineserve::integration

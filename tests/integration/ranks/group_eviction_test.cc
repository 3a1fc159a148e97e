// An engine on two GPUs leaves both and comes back, with its ranks' weights,
// the memory that they share, and their views. Its steps check each byte.
// Daemons and ranks are killed at any point of a move.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "tests/integration/ranks/group_site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;

// Each rank has 8 MiB of weights and 2 MiB that are shared.
constexpr char kLeft[] = "20 MiB left the GPU (2 processes)";

class GroupEvictionTest : public GroupSite {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GroupSite::SetUp());
    if (IsSkipped()) return;
    engine_ = StartEvictableGroup("0,1");
  }
  std::string Uuid(int gpu) const {
    const std::string& path = sockets_[gpu];
    const size_t name = path.rfind('/') + 1;
    return path.substr(name, path.size() - name - sizeof(".sock") + 1);
  }
  // Moves the engine. fsctl itself finds the daemon that moves it.
  Finished Move(const std::string& command, const GroupEngine& engine) {
    return Fsctl({command, engine.name()});
  }
  std::string ExpectMoves(const std::string& command) {
    Finished done = Move(command, *engine_);
    EXPECT_TRUE(done.code == 0 || Eventually([&] {
                  done = Move(command, *engine_);
                  return done.code == 0;
                }))
        << done.out << done.err << daemons_[0]->Stderr()
        << engine_->parent().Stderr();
    return done.out;
  }
  bool IsSuspended(int gpu) {
    for (const abi::EngineSnapshot& engine : TableOf(gpu).engines) {
      if (engine.name == engine_->name()) {
        return engine.view.state == abi::ViewState::kSuspended;
      }
    }
    return false;
  }
  void ExpectAnswer() {
    ASSERT_EQ(engine_->parent().Ask("request"), "ok answered")
        << engine_->parent().ReadAll() << engine_->parent().Stderr();
  }
  // Expects that the engine answers, and that it gets slabs from both pools.
  void ExpectAnswers() {
    ASSERT_NO_FATAL_FAILURE(ExpectAnswer());
    ASSERT_TRUE(Moves(engine_.get()))
        << engine_->parent().Ask("stats") << engine_->parent().Stderr()
        << daemons_[0]->Stderr() << daemons_[1]->Stderr();
  }
  void Restart(int gpu) {
    daemons_[gpu]->Signal(SIGKILL);
    daemons_[gpu]->Wait();
    StartPool(gpu);
  }

  std::unique_ptr<GroupEngine> engine_;
};

TEST_F(GroupEvictionTest, AllRanksLeaveAndComeBack) {
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(Moves(engine_.get()));
    EXPECT_THAT(ExpectMoves("evict"), HasSubstr(kLeft));
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      EXPECT_TRUE(IsSuspended(gpu));
      EXPECT_EQ(SlabsHeld(gpu, engine_->name()), 0u);
    }
    if (round % 2 == 0) ExpectMoves("activate");
    ASSERT_NO_FATAL_FAILURE(ExpectAnswers());
  }
  EXPECT_GE(engine_->Stat("left"), 5);
}

// Two engines share both GPUs, in opposite orders.
TEST_F(GroupEvictionTest, OthersUseWhatItHasLeft) {
  const auto other = StartEvictableGroup("1,0");
  for (int round = 0; round < 4; ++round) {
    ExpectMoves("evict");
    EXPECT_TRUE(Moves(other.get()));
    if (round % 2 == 0) {
      EXPECT_TRUE(Eventually([&] { return Move("evict", *other).code == 0; }));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectAnswers());
    EXPECT_EQ(other->parent().Ask("request"), "ok answered");
  }
}

TEST_F(GroupEvictionTest, DaemonOfAnyOfItsGpusMayBeNamed) {
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    Finished done;
    EXPECT_TRUE(Eventually([&] {
      done = Fsctl({"--gpu", Uuid(gpu), "evict", engine_->name()});
      return done.code == 0;
    })) << done.err;
    EXPECT_THAT(done.out, HasSubstr(kLeft));
    done = Fsctl({"--gpu", Uuid(gpu), "activate", engine_->name()});
    EXPECT_EQ(done.code, 0) << done.err;
    ASSERT_NO_FATAL_FAILURE(ExpectAnswers());
  }
}

TEST_F(GroupEvictionTest, NextDaemonOfEitherGpuBringsItBack) {
  for (int round = 0; round < 4; ++round) {
    ExpectMoves("evict");
    Restart(round % kGpus);
    if (round >= kGpus) Restart((round + 1) % kGpus);
    ASSERT_NO_FATAL_FAILURE(ExpectAnswers());
  }
}

// A daemon may die at any point of a move, which takes some milliseconds. An
// active view keeps the slabs of a dead daemon's pool until it leaves.
TEST_F(GroupEvictionTest, DaemonsThatDieDuringMovesLoseNothing) {
  for (int round = 0; round < 12; ++round) {
    const bool comes = round % 4 >= 2;
    const int gpu = round % kGpus;
    if (comes) ExpectMoves("evict");
    Process move(
        {Program("fsctl"), comes ? "activate" : "evict", engine_->name()},
        environment());
    usleep(static_cast<useconds_t>(random_() % 40'000));
    Restart(gpu);
    move.Wait();
    ASSERT_NO_FATAL_FAILURE(ExpectAnswer());
    ExpectMoves("evict");
    ASSERT_NO_FATAL_FAILURE(ExpectAnswers());
  }
}

TEST_F(GroupEvictionTest,
       RankThatDiesWhileItIsOutEndsTheEngineAndNoMemoryIsLost) {
  for (size_t rank = 0; rank < kGpus; ++rank) {
    ExpectMoves("evict");
    engine_->SignalRank(rank, SIGKILL);
    engine_->parent().Tell("request");
    EXPECT_TRUE(engine_->EventuallyEnds()) << engine_->parent().Stderr();
    EXPECT_TRUE(EventuallyAllFree());
    engine_ = StartEvictableGroup("0,1");
  }
}

TEST_F(GroupEvictionTest, BlockPoolThatDiesWhileItIsOutEndsTheEngine) {
  ExpectMoves("evict");
  engine_->parent().Signal(SIGKILL);
  EXPECT_TRUE(engine_->EventuallyEnds());
  EXPECT_TRUE(EventuallyAllFree());
}

// The other ranks wait for the stopped rank, and the engine continues.
TEST_F(GroupEvictionTest, RankThatIsStoppedLetsTheOthersGoOn) {
  ASSERT_TRUE(Moves(engine_.get()));
  engine_->SignalRank(1, SIGSTOP);
  Process move({Program("fsctl"), "evict", engine_->name()}, environment());
  usleep(300'000);
  engine_->SignalRank(1, SIGCONT);
  move.Wait();
  ExpectAnswers();
}

}  // namespace
}  // namespace fineserve::integration

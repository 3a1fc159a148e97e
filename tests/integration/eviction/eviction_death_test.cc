// Repeats kill -9 and SIGSTOP at any moment of an engine's move to the host and
// back. The victim is the daemon, whose parent keeps its pool, the engine, or
// fsctl. Each time the memory has the right contents, and no byte is lost. A
// run of the tests does only a few of them; FINESERVE_MOVE_KILLS and
// FINESERVE_MOVE_STALLS set other numbers.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>

#include "tests/integration/eviction/sharing_site.h"
#include "tools/lab/process/from_environment.h"
#include "tools/lab/process/random_seed.h"

namespace fineserve::integration {
namespace {

using process::FromEnvironment;
using ::testing::HasSubstr;

class EvictionDeathTest : public SharingSite {
 protected:
  enum Victim { kDaemon, kEngine, kFsctl, kVictims };

  EvictionDeathTest()
      : supervisor_(StartDaemon({"--supervise"})),
        chat_(StartEvictable("chat")),
        other_(StartEngine("4MiB", {"--seed", "22"})) {
    const auto began = std::chrono::steady_clock::now();
    Move("evict", "chat");
    Move("activate", "chat");
    const auto both = std::chrono::steady_clock::now() - began;
    move_us_ = static_cast<unsigned>(both / std::chrono::microseconds(2));
  }

  pid_t PidOf(Victim victim, const Process& fsctl) {
    if (victim == kFsctl) return fsctl.pid();
    return victim == kEngine ? chat_->pid()
                             : static_cast<pid_t>(Table().daemon_pid);
  }

  // Starts a move, and returns at a random moment in the middle of it or
  // shortly after it.
  std::unique_ptr<Process> BeginMove(Victim victim, pid_t* pid) {
    auto fsctl =
        LaunchProgram({"fsctl", to_host_ ? "evict" : "activate", "chat"});
    to_host_ = !to_host_;
    *pid = PidOf(victim, *fsctl);
    usleep(random_() % (move_us_ + move_us_ / 4));
    return fsctl;
  }

  void Kill(Victim victim) {
    pid_t pid = 0;
    const auto fsctl = BeginMove(victim, &pid);
    process::SignalOne(pid, SIGKILL);
    fsctl->Wait();
    if (victim == kDaemon) {
      ASSERT_TRUE(Eventually([&] {
        const auto table = TableIfServed();
        return table && static_cast<pid_t>(table->daemon_pid) != pid;
      })) << supervisor_->Stderr();
    }
    if (victim != kEngine) return;
    chat_->Wait();
    chat_ = StartEvictable("chat");
    value_ = 0;
  }

  void Stall(Victim victim) {
    pid_t pid = 0;
    const auto fsctl = BeginMove(victim, &pid);
    process::SignalOne(pid, SIGSTOP);
    usleep(random_() % 1'000'000);
    process::SignalOne(pid, SIGCONT);
    fsctl->Wait();
  }

  // Expects that the engine computes correctly, wherever its memory is. Half of
  // the time it then writes memory, which must leave again.
  void ExpectAllRight() {
    ASSERT_THAT(other_->Ask("verify"), HasSubstr("ok verified"));
    if (random_() % 4 == 0) return;  // it may be on the host
    ASSERT_THAT(chat_->Ask("verify"), HasSubstr("ok verified"))
        << chat_->Stderr();
    if (value_ != 0) {
      ASSERT_EQ(Ask(*chat_, "peek", At(*chat_)), Value(value_));
    }
    if (random_() % 2 == 0) Poke(*chat_, At(*chat_), ++value_);
  }

  void ExpectThatNothingIsLeft() {
    for (auto* engine : {&chat_, &other_}) engine->reset();
    EXPECT_TRUE(EventuallyFree(kSlabs)) << Fsctl({"slabs"}).out;
    const auto daemon = static_cast<pid_t>(Table().daemon_pid);
    EXPECT_TRUE(Eventually([&] { return StoreBytesIn(daemon) == 0; }))
        << Fsctl({"store"}).out;
  }

  const unsigned seed_ = static_cast<unsigned>(FromEnvironment(
      "FINESERVE_SEED", static_cast<int>(process::RandomSeed())));
  std::mt19937 random_{seed_};
  std::unique_ptr<Process> supervisor_, chat_, other_;
  unsigned move_us_ = 0;
  bool to_host_ = true;
  uint32_t value_ = 0;  // of the workspace's first word; 0: not written yet
  std::array<int, kVictims> count_ = {};
};

TEST_F(EvictionDeathTest, KillsAtRandomStepsLoseNothing) {
  SCOPED_TRACE(testing::Message() << "FINESERVE_SEED=" << seed_);
  const int kills = FromEnvironment("FINESERVE_MOVE_KILLS", 12);
  for (int i = 0; i < kills; ++i) {
    const auto victim = static_cast<Victim>(i % kVictims);
    ++count_[victim];
    ASSERT_NO_FATAL_FAILURE(Kill(victim)) << "kill " << i;
    ASSERT_NO_FATAL_FAILURE(ExpectAllRight()) << "kill " << i;
  }
  printf("killed: %d daemons, %d engines, %d fsctl\n", count_[kDaemon],
         count_[kEngine], count_[kFsctl]);
  ExpectThatNothingIsLeft();
}

TEST_F(EvictionDeathTest, StallsAtRandomStepsLoseNothing) {
  SCOPED_TRACE(testing::Message() << "FINESERVE_SEED=" << seed_);
  const int stalls = FromEnvironment("FINESERVE_MOVE_STALLS", 4);
  for (int i = 0; i < stalls; ++i) {
    const auto victim = static_cast<Victim>(i % 2);
    ++count_[victim];
    Stall(victim);
    ASSERT_NO_FATAL_FAILURE(ExpectAllRight()) << "stall " << i;
  }
  printf("stopped: %d daemons, %d engines\n", count_[kDaemon], count_[kEngine]);
  ExpectThatNothingIsLeft();
}

}  // namespace
}  // namespace fineserve::integration

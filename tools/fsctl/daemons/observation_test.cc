#include "tools/fsctl/daemons/observation.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/view_scoreboard.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 77;
constexpr uint32_t kSlabs = 4;

// Makes a view scoreboard in this process, like one that an engine's process
// holds.
driver::Descriptor MakeScoreboard(uint32_t engine, pid_t pid = getpid()) {
  abi::ViewScoreboardHeader header{};
  memcpy(header.magic, abi::kViewScoreboardMagic, sizeof(header.magic));
  header.abi_version = abi::kAbiVersion;
  header.pid = static_cast<uint32_t>(pid);
  header.scoreboard_bytes = abi::ViewScoreboardBytes(kSlabs);
  header.epoch = kEpoch;
  header.engine_id = engine;
  header.slab_count = kSlabs;
  header.failed_allocations = 5;
  driver::Descriptor fd(
      memfd_create(abi::kViewScoreboardMemfdName, MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(header.scoreboard_bytes)),
            0);
  EXPECT_EQ(pwrite(fd.get(), &header, sizeof(header), 0),
            static_cast<ssize_t>(sizeof(header)));
  return fd;
}

abi::EngineSnapshot EngineOf(pid_t pid) {
  abi::EngineSnapshot engine;
  engine.id = 3;
  engine.view.mode = abi::ViewMode::kView;
  engine.view.pid = static_cast<uint32_t>(pid);
  return engine;
}

pid_t PidThatIsGone() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

TEST(ViewScoreboardTest, IsReadThroughItsProcessAmongTheOthersItHolds) {
  const driver::Descriptor other = MakeScoreboard(2);
  const driver::Descriptor scoreboard = MakeScoreboard(3);
  const auto found = FindViewScoreboard(EngineOf(getpid()), kEpoch, 1);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->engine_id, 3u);
  EXPECT_EQ(found->failed_allocations, 5u);
  EXPECT_EQ(found->used.size(), kSlabs + 1);
}

TEST(ViewScoreboardTest,
     ScoreboardOfAnEngineOnSeveralGpusIsWrittenByAnotherProcess) {
  const driver::Descriptor scoreboard = MakeScoreboard(3, getpid());
  abi::EngineSnapshot engine = EngineOf(getppid());
  EXPECT_FALSE(FindViewScoreboard(engine, kEpoch, 1).ok());
  engine.view.runs_pool = static_cast<uint32_t>(getpid());
  EXPECT_TRUE(FindViewScoreboard(engine, kEpoch, 1).ok());
}

TEST(ViewScoreboardTest, ScoreboardOfAnotherEpochIsIgnored) {
  const driver::Descriptor scoreboard = MakeScoreboard(3);
  EXPECT_EQ(FindViewScoreboard(EngineOf(getpid()), kEpoch + 1, 1).status(),
            absl::NotFoundError(
                absl::StrCat("pid ", getpid(), " holds no view scoreboard")));
}

TEST(ViewScoreboardTest, ScoreboardOfAnEndedProcessIsNotReadThroughOthers) {
  const driver::Descriptor scoreboard = MakeScoreboard(3);
  const auto daemon = static_cast<uint32_t>(getpid());
  const auto found =
      FindViewScoreboard(EngineOf(PidThatIsGone()), kEpoch, daemon);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("is gone"));
}

// A process may close the descriptor once it has mapped the scoreboard.
TEST(ViewScoreboardTest, IsReadThroughTheDaemonIfItsProcessHoldsItMappedOnly) {
  int life[2];
  ASSERT_EQ(pipe2(life, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(life[1]);
    _exit(read(life[0], &byte, 1) == 0 ? 0 : 1);
  }
  const driver::Descriptor scoreboard = MakeScoreboard(3, child);
  const auto found = FindViewScoreboard(EngineOf(child), kEpoch,
                                        static_cast<uint32_t>(getpid()));
  close(life[1]);
  waitpid(child, nullptr, 0);
  close(life[0]);
  EXPECT_TRUE(found.ok()) << found.status();
}

}  // namespace
}  // namespace fineserve::fsctl

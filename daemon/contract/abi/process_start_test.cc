#include "daemon/contract/abi/process_start.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fineserve::abi {
namespace {

TEST(ProcessStartTest, EveryProcessHasItsOwnWhateverItsName) {
  ASSERT_EQ(prctl(PR_SET_NAME, "a) 7 (b"), 0);
  const uint64_t own = ProcessStart(getpid());
  EXPECT_GT(own, ProcessStart(1));
  EXPECT_EQ(own, ProcessStart(getpid()));
}

TEST(ProcessStartTest, ProcessThatHasGoneHasNone) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(ProcessStart(child), 0u);
  EXPECT_FALSE(OpenPidfd(child, 1).valid());
  EXPECT_EQ(errno, ESRCH);
}

TEST(ProcessStartTest, AnotherProcessWithThePidIsNotTheOneThatIsMeant) {
  const uint64_t own = ProcessStart(getpid());
  EXPECT_TRUE(OpenPidfd(getpid(), own).valid());
  EXPECT_FALSE(OpenPidfd(getpid(), own + 1).valid());
  EXPECT_EQ(errno, ESRCH);
  EXPECT_TRUE(OpenPidfd(getpid(), 0).valid());
}

// The child has no descriptor left to read its parent's start with.
TEST(ProcessStartTest, ProcessThatCannotBeLookedAtIsNotTakenForDead) {
  const uint64_t own = ProcessStart(getpid());
  const pid_t child = fork();
  if (child == 0) {
    const driver::Descriptor last(dup(STDERR_FILENO));
    const rlimit few = {static_cast<rlim_t>(last.get() + 2),
                        static_cast<rlim_t>(last.get() + 2)};
    setrlimit(RLIMIT_NOFILE, &few);  // enough for a pidfd
    const bool valid = OpenPidfd(getppid(), own).valid();
    _exit(valid ? 1 : errno == EAGAIN ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ProcessStartTest, ProgramThatReplacesAnotherHasItsOwnImage) {
  int go[2];
  int gone[2];
  ASSERT_EQ(pipe(go) + pipe(gone), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    if (read(go[0], &byte, 1) != 1) _exit(1);
    fcntl(gone[1], F_SETFD, FD_CLOEXEC);
    execl("/bin/sleep", "sleep", "60", nullptr);
  }
  close(gone[1]);
  const uint64_t start = ProcessStart(child);
  const uint64_t image = ProcessImage(child);
  EXPECT_EQ(StartOf(image), start);
  EXPECT_EQ(ProcessImage(child), image);
  ASSERT_EQ(write(go[1], "x", 1), 1);
  char byte;
  EXPECT_EQ(read(gone[0], &byte, 1), 0) << "closed by exec";
  EXPECT_FALSE(IsSameImage(ProcessImage(child), image));
  EXPECT_EQ(StartOf(ProcessImage(child)), start);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(ProcessImage(child), 0u);
}

TEST(ProcessStartTest, ImagesThatTheKernelKeepsToItselfAreThoseOfTheirStart) {
  const uint64_t own = ProcessImage(getpid());
  EXPECT_TRUE(IsSameImage(own, own));
  EXPECT_TRUE(IsSameImage(own, ProcessStart(getpid())));
  EXPECT_FALSE(IsSameImage(own, ProcessStart(getpid()) + 1));
  EXPECT_FALSE(IsSameImage(own, 0));
}

// A process is dead even if its parent has not asked for its exit status yet.
TEST(ProcessStartTest, ZombieIsReportedAsExited) {
  const pid_t child = fork();
  if (child == 0) pause();
  const driver::Descriptor pidfd = OpenPidfd(child, ProcessStart(child));
  ASSERT_TRUE(pidfd.valid());
  kill(child, SIGKILL);
  pollfd exited = {pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&exited, 1, 10'000), 1);
  EXPECT_TRUE(OpenPidfd(child, ProcessStart(child)).valid());
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace fineserve::abi

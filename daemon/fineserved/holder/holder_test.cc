#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/base/descriptor_store.h"
#include "daemon/fineserved/holder/kept_descriptors.h"
#include "daemon/fineserved/holder/supervisor.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::holder {
namespace {

ino_t InodeOf(int fd) {
  struct stat st = {};
  fstat(fd, &st);
  return st.st_ino;
}

// Gives the descriptors that one child stored to the next child. Both children
// use libsystemd, which we have not written.
class KeptDescriptorsTest : public ::testing::Test {
 protected:
  KeptDescriptors kept_ = KeptDescriptors::Listen();
  driver::Descriptor a_{memfd_create("a", MFD_CLOEXEC)};
  driver::Descriptor b_{memfd_create("b", MFD_CLOEXEC)};

  // Runs `body` in a child, and receives what the child has sent by its end.
  // Returns -1 if the child does not end.
  template <typename Body>
  int InChild(Body body) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("NOTIFY_SOCKET", kept_.address().c_str(), 1);
      setenv("FDSTORE", "10", 1);
      _exit(body());
    }
    int status;
    std::string text;
    const bool ends = process::Eventually([&] {
      const bool ended = waitpid(child, &status, WNOHANG) != 0;
      while (kept_.Receive(child, &text)) text_ += text;
      return ended;
    });
    if (!ends) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string text_;
};

TEST_F(KeptDescriptorsTest, NextChildFindsEachUnderItsName) {
  ASSERT_EQ(InChild([&] {
              const bool stored = DescriptorStore::Store("a", a_.get()).ok() &&
                                  DescriptorStore::Store("b", b_.get()).ok() &&
                                  DescriptorStore::Flush().ok();
              return stored ? 0 : 1;
            }),
            0);
  ASSERT_EQ(kept_.count(), 2u);
  const ino_t a = InodeOf(a_.get());
  const ino_t b = InodeOf(b_.get());
  EXPECT_EQ(InChild([&] {
              // Occupies a descriptor number that GiveToChild needs.
              dup2(a_.get(), 4);
              if (!kept_.GiveToChild()) return 1;
              const DescriptorStore::Named named = DescriptorStore::TakeAll();
              if (named.size() != 2) return 2;
              if (InodeOf(named.at("a").get()) != a) return 3;
              if (InodeOf(named.at("b").get()) != b) return 4;
              // No grandchild inherits them.
              const int flags = fcntl(named.at("a").get(), F_GETFD);
              return (flags & FD_CLOEXEC) == 0 ? 5 : 0;
            }),
            0);
}

TEST_F(KeptDescriptorsTest, RemovedIsClosedAndAnotherOfTheNameReplacesIt) {
  InChild([&] {
    DescriptorStore::Store("a", a_.get()).IgnoreError();
    DescriptorStore::Store("b", b_.get()).IgnoreError();
    DescriptorStore::Remove("a");
    DescriptorStore::Store("b", a_.get()).IgnoreError();
    return 0;
  });
  ASSERT_EQ(kept_.count(), 1u);
  const ino_t a = InodeOf(a_.get());
  EXPECT_EQ(InChild([&] {
              if (!kept_.GiveToChild()) return 1;
              const DescriptorStore::Named named = DescriptorStore::TakeAll();
              return InodeOf(named.at("b").get()) == a ? 0 : 2;
            }),
            0);
}

TEST_F(KeptDescriptorsTest, DatagramOfAnotherProcessIsIgnored) {
  const pid_t stranger = fork();
  if (stranger == 0) {
    setenv("NOTIFY_SOCKET", kept_.address().c_str(), 1);
    setenv("FDSTORE", "10", 1);
    DescriptorStore::Store("a", a_.get()).IgnoreError();
    _exit(0);
  }
  waitpid(stranger, nullptr, 0);
  std::string text;
  EXPECT_TRUE(kept_.Receive(getpid(), &text));
  EXPECT_EQ(kept_.count(), 0u);
}

// The daemon continues to serve without its parent.
TEST_F(KeptDescriptorsTest, ParentThatHasGoneIsNoError) {
  const std::string address = kept_.address();
  kept_ = KeptDescriptors();
  const pid_t child = fork();
  if (child == 0) {
    setenv("NOTIFY_SOCKET", address.c_str(), 1);
    setenv("FDSTORE", "10", 1);
    const bool fine = DescriptorStore::Store("a", a_.get()).ok() &&
                      DescriptorStore::Flush().ok();
    _exit(fine ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(KeptDescriptorsTest, OtherMessagesAreHandedOn) {
  InChild([&] { return sd_notify(0, "READY=1\nSTATUS=serving") > 0 ? 0 : 1; });
  EXPECT_EQ(text_, "READY=1\nSTATUS=serving\n");
  EXPECT_EQ(kept_.count(), 0u);
}

// A parent that wants to be notified but keeps nothing is no store, either.
TEST_F(KeptDescriptorsTest, WithoutAParentThereIsNoStore) {
  ASSERT_EQ(getenv("NOTIFY_SOCKET"), nullptr);
  EXPECT_EQ(InChild([&] {
              DescriptorStore::Store("a", a_.get()).IgnoreError();
              return unsetenv("FDSTORE") == 0 &&
                             DescriptorStore::Store("b", b_.get()).ok()
                         ? 0
                         : 1;
            }),
            0);
  EXPECT_EQ(kept_.count(), 1u);
  EXPECT_FALSE(DescriptorStore::Exists());
  EXPECT_TRUE(DescriptorStore::Store("a", a_.get()).ok());
  EXPECT_TRUE(DescriptorStore::Flush().ok());
  EXPECT_TRUE(DescriptorStore::TakeAll().empty());
}

// A supervisor in a separate process, and what its children print.
class SupervisorTest : public ::testing::Test {
 protected:
  struct Start {
    int number = 0;
    pid_t pid = 0;
  };

  void Run(const std::vector<std::string>& acts) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    supervisor_ = fork();
    if (supervisor_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      close(ends[1]);
      _exit(Supervise(FINESERVE_STARTS_PROGRAM, acts));
    }
    close(ends[1]);
    output_.reset(fdopen(ends[0], "r"));
  }
  Start Next() {
    Start start;
    char line[256];  // among what the supervisor logs
    while (fgets(line, sizeof(line), output_.get()) != nullptr) {
      if (sscanf(line, "START %d %d", &start.number, &start.pid) == 2) break;
    }
    return start;
  }
  int Status() {
    int status = 0;
    waitpid(supervisor_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void Signal(int signal) { kill(supervisor_, signal); }

  struct Close {
    void operator()(FILE* file) const { fclose(file); }
  };
  pid_t supervisor_ = 0;
  std::unique_ptr<FILE, Close> output_;
};

TEST_F(SupervisorTest, ChildThatDiesIsStartedAgainWithWhatItHasStored) {
  Run({"kill", "3", "0", "wait"});
  for (int i = 1; i <= 4; ++i) EXPECT_EQ(Next().number, i);
  Signal(SIGTERM);
  EXPECT_EQ(Status(), 0);
}

TEST_F(SupervisorTest, KilledFromOutsideItComesBack) {
  Run({"wait"});
  const Start first = Next();
  kill(first.pid, SIGKILL);
  const Start second = Next();
  EXPECT_EQ(second.number, 2);
  EXPECT_NE(second.pid, first.pid);
  Signal(SIGUSR2);
  EXPECT_EQ(Next().number, 3);
  Signal(SIGINT);
  EXPECT_EQ(Status(), 0);
}

// A wrong configuration is not tried forever.
TEST_F(SupervisorTest, ChildThatFailsBeforeItWasEverReadyIsNotStartedAgain) {
  Run({"unready", "2"});
  EXPECT_EQ(Next().number, 1);
  EXPECT_EQ(Status(), 2);
}

TEST_F(SupervisorTest, ProgramThatIsMissingIsAnError) {
  const pid_t child = fork();
  if (child == 0) _exit(Supervise("/nonexistent/fineserved", {}));
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 127);
}

}  // namespace
}  // namespace fineserve::holder

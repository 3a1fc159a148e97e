#include "tools/up/engine_register.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/driver/descriptor.h"
#include "tools/up/folder_fixture.h"

namespace fineserve::fsctl {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    read_end.Reset(ends[0]);
    write_end.Reset(ends[1]);
  }
  driver::Descriptor read_end, write_end;
};

// A child process that leads a process group, and is killed with its object.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(body());
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ == 0) return;
    Kill();
    Wait();
  }

  pid_t pid() const { return pid_; }
  void Kill() const { kill(pid_, SIGKILL); }
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }

 private:
  pid_t pid_;  // 0: moved from, or waited for
};

int SleepForever() {
  for (;;) pause();
}

class EngineRegisterTest : public FolderTest {
 protected:
  EngineRegisterTest() { std::ofstream(fleet_) << ""; }

  absl::StatusOr<EngineRegister> Claim() const {
    return EngineRegister::Claim(folder(), fleet_);
  }
  // Path of chat-0's file.
  std::string PidFile() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      if (entry.is_directory()) return entry.path() / "chat-0.pid";
    }
    return "";
  }
  bool IsEntered() const { return std::filesystem::exists(PidFile()); }

  // Starts a process that enters itself as chat-0 as soon as it can read from
  // `gate`, and then goes on. The calling process releases the lock.
  static Child Engine(EngineRegister own, int gate) {
    return Child([&] {
      char byte;
      if (read(gate, &byte, 1) != 1 || !own.Enter("chat-0").ok()) return 1;
      return SleepForever();
    });
  }
  Child EnteredEngine() const {
    const Pipe gate;
    EXPECT_EQ(write(gate.write_end.get(), "x", 1), 1);
    Child engine = Engine(*Claim(), gate.read_end.get());
    EXPECT_TRUE(Eventually([&] { return IsEntered(); }));
    return engine;
  }

  const std::string fleet_ = folder() + "/fleet.toml";
};

TEST_F(EngineRegisterTest, EngineIsFoundByTheNextUntilItEnds) {
  Child engine = EnteredEngine();
  const auto next = Claim();
  ASSERT_TRUE(next.ok()) << next.status();
  std::vector<RegisteredEngine> running = next->Running();
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].engine, "chat-0");
  EXPECT_EQ(running[0].pid, engine.pid());
  EXPECT_FALSE(HasEnded(running[0].pidfd));
  engine.Kill();
  EXPECT_TRUE(Eventually([&] { return HasEnded(running[0].pidfd); }))
      << "though no process has waited for it";
  EXPECT_TRUE(next->Running().empty());
  EXPECT_FALSE(IsEntered());
}

TEST_F(EngineRegisterTest, StoppedEngineIsKnownToTheNextUntilThatEnds) {
  ASSERT_TRUE(Claim()->SetStopped("chat-0", 4711).ok());
  const auto next = Claim();
  EXPECT_THAT(next->Stopped(), ElementsAre(Pair("chat-0", uint64_t{4711})));
  EXPECT_TRUE(next->Running().empty());
  next->EndStopped("chat-0");
  EXPECT_TRUE(next->Stopped().empty());
}

TEST_F(EngineRegisterTest, SecondFsctlIsRefusedAndTheFirstIsNamed) {
  const auto first = Claim();
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = Claim().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  EXPECT_THAT(std::string(second.message()),
              StartsWith(absl::StrCat("pid ", getpid(), " runs the fleet ")));
  EXPECT_THAT(std::string(second.message()), EndsWith("; stop it first"));
}

TEST_F(EngineRegisterTest, AnotherFleetHasARegisterOfItsOwn) {
  const std::string other = folder() + "/other.toml";
  std::ofstream(other) << "";
  const auto first = Claim();
  EXPECT_TRUE(EngineRegister::Claim(folder(), other).ok());
  EXPECT_FALSE(EngineRegister::Claim(folder(), folder() + "/./fleet.toml").ok())
      << "the same by another path";
}

// The link changes as when Kubernetes updates a ConfigMap. With another
// register, each engine would run twice.
TEST_F(EngineRegisterTest, FleetWhoseLinkLeadsElsewhereNowKeepsItsRegister) {
  const std::string link = folder() + "/link.toml";
  std::filesystem::create_symlink("fleet.toml", link);
  const auto first = EngineRegister::Claim(folder(), link);
  EXPECT_FALSE(Claim().ok()) << "the file that it leads to";
  std::filesystem::remove(link);
  std::ofstream(folder() + "/newer.toml") << "";
  std::filesystem::create_symlink("newer.toml", link);
  EXPECT_FALSE(EngineRegister::Claim(folder(), link).ok());
}

// systemd-tmpfiles takes a lock on the folder before it removes old files.
TEST_F(EngineRegisterTest, RuntimeFolderIsNotCleanedUpInBetween) {
  const driver::Descriptor cleaner(open(folder().c_str(), O_RDONLY));
  {
    const auto own = Claim();
    EXPECT_NE(flock(cleaner.get(), LOCK_EX | LOCK_NB), 0);
  }
  EXPECT_EQ(flock(cleaner.get(), LOCK_EX | LOCK_NB), 0);
}

// If fsctl is killed between fork and the engine's entry, it leaves no engine
// behind that the next fsctl does not know.
TEST_F(EngineRegisterTest, LockIsHeldUntilTheEngineHasEnteredItself) {
  const Pipe gate;
  Child engine = Engine(*Claim(), gate.read_end.get());
  EXPECT_TRUE(absl::IsFailedPrecondition(Claim().status()));
  ASSERT_EQ(write(gate.write_end.get(), "x", 1), 1);
  ASSERT_TRUE(Eventually([&] { return IsEntered(); }));
  const auto next = Claim();
  ASSERT_TRUE(next.ok()) << next.status();
  ASSERT_EQ(next->Running().size(), 1u);
  EXPECT_EQ(next->Running()[0].pid, engine.pid());
}

TEST_F(EngineRegisterTest, LaterProcessWithTheSamePidIsLeftAlone) {
  Child stranger = EnteredEngine();
  std::ofstream(PidFile()) << stranger.pid() << " 1\n";
  EXPECT_TRUE(Claim()->Running().empty());
  EXPECT_FALSE(IsEntered());
  EXPECT_EQ(waitpid(stranger.pid(), nullptr, WNOHANG), 0) << "it lives";
}

TEST_F(EngineRegisterTest, RestOfADeadEnginesProcessGroupIsKilled) {
  Pipe ends;
  {
    auto own = *Claim();
    Child engine([&] {
      if (!own.Enter("chat-0").ok()) return 1;
      if (fork() != 0) return 0;
      return SleepForever();  // holds its end of the pipe
    });
    EXPECT_EQ(engine.Wait(), 0);
  }
  ends.write_end.Reset();
  EXPECT_TRUE(Claim()->Running().empty());
  char byte;
  EXPECT_EQ(read(ends.read_end.get(), &byte, 1), 0)
      << "no process holds the pipe";
}

TEST_F(EngineRegisterTest, UnreadableFilesAreRemoved) {
  const auto own = Claim();
  for (const char* text : {"", "x", "0 1\n", "-1 1\n", "1 1\n", "4711\n"}) {
    std::ofstream(PidFile()) << text;
    EXPECT_TRUE(own->Running().empty());
    EXPECT_FALSE(IsEntered()) << text;
  }
}

TEST_F(EngineRegisterTest, NameThatIsNoFileNameIsAnError) {
  auto own = Claim();
  EXPECT_THAT(std::string(own->Enter("a/b").message()), HasSubstr("cannot"));
}

}  // namespace
}  // namespace fineserve::fsctl

#include "tools/fsctl/upgrade/release.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace fineserve::fsctl {
namespace {

TEST(ReleaseTest, VersionOfFineservedIsReadAndNothingElse) {
  const absl::StatusOr<Release> release =
      ParseRelease("fineserved 0.1.0, ABI 10\n");
  ASSERT_TRUE(release.ok()) << release.status();
  EXPECT_EQ(release->version, "0.1.0");
  EXPECT_EQ(release->abi, 10u);
  EXPECT_EQ(ReleaseName(*release), "fineserved 0.1.0 (ABI 10)");
  for (const char* text :
       {"", "fineserved", "fineserved , ABI 10", "fineserved 0.1.0",
        "fineserved 0.1.0, ABI ten", "fineserved 0.1.0, ABI 10 and more",
        "true (GNU coreutils) 9.1"}) {
    EXPECT_FALSE(ParseRelease(text).ok()) << text;
  }
}

TEST(ReleaseTest, FileThatCannotBeAskedIsRefusedWithTheReason) {
  const auto why = [](const std::string& path) {
    return std::string(AskRelease(path).status().message());
  };
  EXPECT_NE(why("/nonexistent").find("No such file"), std::string::npos);
  EXPECT_NE(why("/etc").find("is no file"), std::string::npos);
  EXPECT_NE(why("/bin/false").find("does not run here"), std::string::npos);
  EXPECT_NE(why("/bin/echo").find("is no fineserved"), std::string::npos);
}

TEST(ServingDaemonTest, OnlyAProcessThatAnswersIsTheDaemon) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  ServingDaemon daemon;
  daemon.pid = getpid();
  EXPECT_TRUE(CheckAnswers(daemon, ends[0]).ok());
  daemon.pid = getppid();
  EXPECT_FALSE(CheckAnswers(daemon, ends[0]).ok());
  close(ends[0]);
  close(ends[1]);
}

// A process of another user that claims to be a daemon.
class ForeignDaemonTest : public ::testing::Test {
 protected:
  static constexpr uid_t kUser = 4711;

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    char folder[] = "/tmp/fineserve-release-XXXXXX";
    folder_ = mkdtemp(folder);
    chmod(folder, 0755);
    const std::string path = folder_ + "/program";
    std::ofstream(path) << "#!/bin/sh\necho fineserved $(id -u), ABI 7\n";
    chmod(path.c_str(), 0755);
    daemon_.program = path;
    daemon_.executable.Reset(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    daemon_.pid = fork();
    if (daemon_.pid == 0) {
      if (setgid(kUser) != 0 || setuid(kUser) != 0) _exit(1);
      _exit(write(ready[1], "x", 1) == 1 ? (pause(), 0) : 1);
    }
    close(ready[1]);
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
  }
  void TearDown() override {
    if (daemon_.pid > 0) {
      kill(daemon_.pid, SIGKILL);
      waitpid(daemon_.pid, nullptr, 0);
    }
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::string folder_;
  ServingDaemon daemon_;
};

TEST_F(ForeignDaemonTest, ItsProgramIsAskedWithItsRights) {
  const absl::StatusOr<Release> release = AskRelease(daemon_);
  ASSERT_TRUE(release.ok()) << release.status();
  EXPECT_EQ(release->version, std::to_string(kUser));
}

TEST_F(ForeignDaemonTest, RootTrustsOnlyAProgramThatIsRootsAlone) {
  EXPECT_TRUE(CheckTrust(daemon_).ok()) << CheckTrust(daemon_);
  std::filesystem::remove(daemon_.program);
  std::ofstream(daemon_.program) << "the next release";
  EXPECT_TRUE(CheckTrust(daemon_).ok()) << CheckTrust(daemon_);
  ASSERT_EQ(chown(daemon_.program.c_str(), kUser, kUser), 0);
  EXPECT_FALSE(CheckTrust(daemon_).ok());
  daemon_.program = "/bin/sh";  // root's, but another program
  EXPECT_FALSE(CheckTrust(daemon_).ok());
}

}  // namespace
}  // namespace fineserve::fsctl

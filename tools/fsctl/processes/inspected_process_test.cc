#include "tools/fsctl/processes/inspected_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/driver/descriptor.h"
#include "tools/lab/process/child_process.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::fsctl {
namespace {

using ::testing::Contains;
using ::testing::Not;

TEST(DescriptorTableTest, IsFullWhenNoFileCanBeOpened) {
  EXPECT_EQ(FullDescriptorTable(getpid()), "");
  rlimit before, tight;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  tight = before;
  tight.rlim_cur = 40;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  std::vector<int> open_files;
  int file;
  while ((file = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
    open_files.push_back(file);
  }
  // The look itself needs one.
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const pid_t child = fork();
  if (child == 0) {
    setrlimit(RLIMIT_NOFILE, &tight);
    pause();
    _exit(0);
  }
  std::string full;
  while ((full = FullDescriptorTable(child)).empty()) usleep(1000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (int fd : open_files) close(fd);
  EXPECT_THAT(full, testing::HasSubstr(" of 40)"));
}

TEST(DescriptorTableTest, TableOfNoProcessIsNotFull) {
  EXPECT_EQ(FullDescriptorTable(999999999), "");
}

// The error comes after the file was opened, as with a file of a process that
// ends while it is read.
TEST(ReadFileTest, FileWhoseReadFailsIsEmpty) {
  const process::TemporaryFolder folder;
  EXPECT_EQ(ReadFile(folder.path()), "");
  EXPECT_EQ(ReadFile(folder.path() + "/none"), "");
}

TEST(ReadFileTest, LastLineIsTheLastOneWithText) {
  const process::TemporaryFolder folder;
  const std::string path = folder.path() + "/log";
  const auto last = [&](const std::string& text, off_t begin = 0) {
    std::ofstream(path) << text;
    return LastLine(driver::Descriptor(open(path.c_str(), O_RDONLY)).get(),
                    begin);
  };
  EXPECT_EQ(last(""), "");
  EXPECT_EQ(last("one\ntwo\n"), "two");
  EXPECT_EQ(last("one\ntwo\n \n"), "two");
  EXPECT_EQ(last("one\n", 4), "") << "nothing since then";
  EXPECT_EQ(last(std::string(10'000, 'x') + "\nend"), "end");
  EXPECT_EQ(LastLine(-1), "") << "there is no file";
}

driver::Descriptor Bound(int family, uint16_t* port) {
  driver::Descriptor fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address = {};
  address.ss_family = static_cast<sa_family_t>(family);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  // Both address families have the port at the same place.
  *port = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  return fd;
}

TEST(ListeningPortsTest, PortsOfAGroupAreThoseAtWhichItsProcessesListen) {
  uint16_t v4 = 0, v6 = 0, bound = 0;
  const driver::Descriptor a = Bound(AF_INET, &v4);
  const driver::Descriptor b = Bound(AF_INET6, &v6);
  const driver::Descriptor c = Bound(AF_INET, &bound);
  ASSERT_EQ(listen(a.get(), 1), 0);
  ASSERT_EQ(listen(b.get(), 1), 0);
  const auto ports = ListeningPorts(getpgrp());
  EXPECT_THAT(ports, Contains(v4));
  EXPECT_THAT(ports, Contains(v6));
  EXPECT_THAT(ports, Not(Contains(bound))) << "it does not listen there";
}

TEST(ListeningPortsTest, OtherGroupsHaveTheirOwn) {
  const process::ChildProcess other(
      process::Command{.words = {"sleep", "1000"}, .own_group = true});
  uint16_t mine = 0;
  const driver::Descriptor a = Bound(AF_INET, &mine);
  ASSERT_EQ(listen(a.get(), 1), 0);
  EXPECT_TRUE(ListeningPorts(other.pid()).empty());
}

class FreezerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/fineserve-freezer-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    mounts_ =
        absl::StrCat("30 24 0:26 / ", folder_,
                     "/v2 rw - cgroup2 cgroup2 rw\n31 24 0:27 /outer ", folder_,
                     "/v1 rw,nosuid - cgroup cgroup rw,freezer\n",
                     "32 24 0:28 / /proc rw - proc proc rw\n");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string folder_;
  std::string mounts_;
};

TEST_F(FreezerTest, ProcessOfAFrozenCgroupIsThawedThere) {
  Write("/v2/a/cgroup.freeze", "1\n");
  EXPECT_EQ(ThawCommand("0::/a\n", mounts_),
            absl::StrCat("echo 0 >'", folder_, "/v2/a/cgroup.freeze'"));
  Write("/v2/a/cgroup.freeze", "0\n");
  EXPECT_EQ(ThawCommand("0::/a\n", mounts_), "");
}

// Names of systemd's template units contain backslashes.
TEST_F(FreezerTest, NameIsQuotedForAShell) {
  Write("/v2/a\\x2d'b/cgroup.freeze", "1\n");
  EXPECT_EQ(
      ThawCommand("0::/a\\x2d'b\n", mounts_),
      absl::StrCat("echo 0 >'", folder_, "/v2/a\\x2d'\\''b/cgroup.freeze'"));
}

TEST_F(FreezerTest, ProcessIsFrozenByACgroupAboveItsOwn) {
  Write("/v2/a/cgroup.freeze", "1\n");
  Write("/v2/a/b/cgroup.freeze", "0\n");
  EXPECT_EQ(ThawCommand("0::/a/b\n", mounts_),
            absl::StrCat("echo 0 >'", folder_, "/v2/a/cgroup.freeze'"));
}

TEST_F(FreezerTest, FreezerOfVersionOneFreezesAsWell) {
  Write("/v1/a/freezer.self_freezing", "1\n");
  EXPECT_EQ(ThawCommand("6:freezer:/outer/a\n0::/\n", mounts_),
            absl::StrCat("echo THAWED >'", folder_, "/v1/a/freezer.state'"));
}

TEST_F(FreezerTest, ProcessThatRunsIsNotFrozen) {
  EXPECT_EQ(ThawCommand("6:freezer:/\n0::/\n", mounts_), "");
  EXPECT_EQ(ThawCommand("", mounts_), "");
  EXPECT_EQ(ThawCommand(getpid()), "");
}

}  // namespace

}  // namespace fineserve::fsctl

#include "tools/fsctl/process/freezer.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace fineserve::fsctl {
namespace {

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

// systemd's templates have backslashes in theirs.
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

#include "daemon/base/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tools/lab/process/temporary_folder.h"

namespace fineserve::base {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WholeFileTest : public ::testing::Test {
 protected:
  std::string Text() const {
    const auto text = ReadWholeFile(path_);
    return text.ok() ? *text : std::string(text.status().message());
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& file :
         std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(file.path().filename());
    }
    return names;
  }
  struct stat Facts() const {
    struct stat st = {};
    EXPECT_EQ(lstat(path_.c_str(), &st), 0);
    return st;
  }

  const process::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/profile.toml";
};

TEST_F(WholeFileTest, ReplacesWhatWasThere) {
  ASSERT_TRUE(ReplaceFile(path_, "a longer text").ok());
  ASSERT_TRUE(ReplaceFile(path_, "new", {0600, true, true}).ok());
  EXPECT_EQ(Text(), "new");
  EXPECT_THAT(Files(), ElementsAre("profile.toml"));
}

// A limit on the file's size stops a write halfway, as a full disk does.
TEST_F(WholeFileTest, WriteThatStopsHalfwayLeavesTheOldFileAlone) {
  ASSERT_TRUE(ReplaceFile(path_, "old").ok());
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {1000, before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const absl::Status s = ReplaceFile(path_, std::string(5000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(std::string(s.message()),
              HasSubstr("profile.toml: File too large"));
  EXPECT_EQ(Text(), "old");
  EXPECT_THAT(Files(), ElementsAre("profile.toml"));
}

TEST_F(WholeFileTest, FileThatCannotBeMadeIsSaidInOneLine) {
  EXPECT_EQ(ReplaceFile(folder_.path() + "/no/p.toml", "x").message(),
            "cannot write " + folder_.path() +
                "/no/p.toml: No such file or directory");
}

// A folder cannot be replaced by a file: the rename fails after the draft is
// written.
TEST_F(WholeFileTest, FailureAfterWritingLeavesNoDraftBehind) {
  ASSERT_TRUE(std::filesystem::create_directory(path_));
  EXPECT_FALSE(ReplaceFile(path_, "x").ok());
  EXPECT_THAT(Files(), ElementsAre("profile.toml"));
}

TEST_F(WholeFileTest, ModeIsTheCallersWhateverTheUmaskIs) {
  const mode_t usual = umask(0077);
  EXPECT_TRUE(ReplaceFile(path_, "x", {.mode = 0644}).ok());
  EXPECT_EQ(Facts().st_mode & 07777, 0644u);
  umask(0);
  EXPECT_TRUE(ReplaceFile(path_, "x").ok());
  umask(usual);
  EXPECT_EQ(Facts().st_mode & 07777, 0600u);
}

// A killed process with the same pid left its draft, here even as a link.
TEST_F(WholeFileTest, DraftOfAKilledProcessIsNotInTheWayNorFollowed) {
  const std::string victim = folder_.path() + "/victim";
  std::ofstream(victim) << "kept";
  std::filesystem::create_symlink(
      victim, path_ + "." + std::to_string(getpid()) + ".new");
  ASSERT_TRUE(ReplaceFile(path_, "new").ok());
  EXPECT_EQ(Text(), "new");
  EXPECT_EQ(*ReadWholeFile(victim), "kept");
}

TEST_F(WholeFileTest, RootsFileForAServiceKeepsItsOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to write for another user";
  ASSERT_EQ(chown(folder_.path().c_str(), 65534, 65534), 0);
  ASSERT_TRUE(ReplaceFile(path_, "of root").ok());
  EXPECT_EQ(Facts().st_uid, 0u);
  ASSERT_TRUE(ReplaceFile(path_, "still", {.keeps_owner = true}).ok());
  EXPECT_EQ(Facts().st_uid, 0u);
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_TRUE(ReplaceFile(path_, "of it", {.keeps_owner = true}).ok());
  EXPECT_EQ(Facts().st_uid, 65534u);
}

TEST_F(WholeFileTest, MissingFileAndFolderAreDistinguished) {
  EXPECT_EQ(ReadWholeFile(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadWholeFile(folder_.path()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(DiskRoomTest, AFolderHasTheRoomOfItsDisk) {
  struct statvfs disk;
  ASSERT_EQ(statvfs("/tmp", &disk), 0);
  const absl::optional<uint64_t> free = FreeBytes("/tmp");
  ASSERT_TRUE(free.has_value());
  EXPECT_LE(*free, uint64_t{disk.f_blocks} * disk.f_frsize);
}

TEST(DiskRoomTest, NoFileAndNoDiskHaveNone) {
  EXPECT_FALSE(FreeBytes("/no/such/file").has_value());
  EXPECT_FALSE(FreeBytes("/proc/self").has_value());
}

}  // namespace

}  // namespace fineserve::base

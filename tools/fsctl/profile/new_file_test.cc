#include "tools/fsctl/profile/new_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

class NewFileTest : public ::testing::Test {
 protected:
  NewFileTest() { std::filesystem::create_directory(folder_); }
  ~NewFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Text() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  size_t FilesInFolder() const {
    size_t files = 0;
    for (const auto& unused : std::filesystem::directory_iterator(folder_)) {
      files += unused.exists() ? 1 : 0;
    }
    return files;
  }

  const std::string folder_ =
      ::testing::TempDir() + "new-file-" + std::to_string(getpid());
  const std::string path_ = folder_ + "/profile.toml";
};

TEST_F(NewFileTest, ReplacesWhatWasThere) {
  ASSERT_TRUE(CheckWritable(path_).ok());
  ASSERT_TRUE(ReplaceFile(path_, "a longer text").ok());
  ASSERT_TRUE(ReplaceFile(path_, "new").ok());
  EXPECT_EQ(Text(), "new");
  EXPECT_EQ(FilesInFolder(), 1u);
}

// A limit on the file's size stops a write halfway, as a full disk does.
TEST_F(NewFileTest, WriteThatStopsHalfwayLeavesTheOldFileAlone) {
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
              HasSubstr("profile.toml: File too large; choose another"));
  EXPECT_EQ(Text(), "old");
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(NewFileTest, PlaceThatCannotBeIsKnownBeforehand) {
  EXPECT_THAT(std::string(CheckWritable(folder_ + "/no/p.toml").message()),
              HasSubstr("No such file or directory"));
  for (const std::string& place : {folder_, std::string("/dev/full")}) {
    EXPECT_THAT(std::string(CheckWritable(place).message()),
                HasSubstr("is not a regular file; choose another"));
  }
  EXPECT_FALSE(ReplaceFile(folder_ + "/no/p.toml", "x").ok());
}

}  // namespace
}  // namespace fineserve::fsctl

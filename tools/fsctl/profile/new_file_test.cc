#include "tools/fsctl/profile/new_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

class NewFileTest : public ::testing::Test {
 protected:
  NewFileTest() { std::filesystem::create_directory(folder_); }
  ~NewFileTest() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ =
      ::testing::TempDir() + "new-file-" + std::to_string(getpid());
  const std::string path_ = folder_ + "/profile.toml";
};

TEST_F(NewFileTest, PlaceThatCannotBeIsKnownBeforehand) {
  EXPECT_THAT(std::string(CheckWritable(folder_ + "/no/p.toml").message()),
              HasSubstr("No such file or directory"));
  for (const std::string& place : {folder_, std::string("/dev/full")}) {
    EXPECT_THAT(std::string(CheckWritable(place).message()),
                HasSubstr("is not a regular file; choose another"));
  }
  EXPECT_THAT(std::string(WriteProfile(folder_ + "/no/p.toml", "x").message()),
              HasSubstr("No such file or directory; choose another"));
}

}  // namespace
}  // namespace fineserve::fsctl

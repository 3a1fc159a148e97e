#include "tools/fsctl/upgrade/release.h"

#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

TEST(ReleaseTest, WhatAFineservedPrintsIsReadAndNothingElse) {
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

}  // namespace
}  // namespace fineserve::fsctl

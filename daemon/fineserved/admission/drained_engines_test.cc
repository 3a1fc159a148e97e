#include "daemon/fineserved/admission/drained_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "daemon/base/clock/clock.h"

namespace fineserve::admission {
namespace {

using ::testing::HasSubstr;

class DrainedEnginesTest : public ::testing::Test {
 protected:
  DrainedEnginesTest() {
    char folder[] = "/tmp/fineserve-drained-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/GPU-1.drained";
  }
  ~DrainedEnginesTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_, path_;
};

TEST_F(DrainedEnginesTest, FileIsItsUsersOnly) {
  ASSERT_TRUE(DrainedEngines(path_).Set({"a"}, true).ok());
  EXPECT_EQ(
      std::filesystem::status(path_).permissions(),
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(DrainedEnginesTest, DrainIsThereForTheNextDaemonUntilItIsUndone) {
  DrainedEngines first(path_);
  EXPECT_FALSE(first.Has("a"));
  ASSERT_TRUE(first.Set({"a", "org/b c"}, true).ok());
  DrainedEngines second(path_);
  EXPECT_TRUE(second.Has("a"));
  EXPECT_TRUE(second.Has("org/b c"));
  ASSERT_TRUE(second.Set({"a"}, false).ok());
  const DrainedEngines third(path_);
  EXPECT_FALSE(third.Has("a"));
  EXPECT_TRUE(third.Has("org/b c"));
}

TEST_F(DrainedEnginesTest, SaysSinceWhenAndTheNextDaemonNoEarlier) {
  const absl::Time before = SteadyNow();
  DrainedEngines first(path_);
  EXPECT_FALSE(first.Since("a").has_value());
  ASSERT_TRUE(first.Set({"a"}, true).ok());
  ASSERT_TRUE(first.Since("a").has_value());
  const absl::Time since = *first.Since("a");
  EXPECT_GE(since, before);
  // Said again, it goes on.
  ASSERT_TRUE(first.Set({"a", "b"}, true).ok());
  EXPECT_EQ(first.Since("a"), since);
  ASSERT_TRUE(first.Empty({}).ok());
  EXPECT_GE(*first.Since("another"), since);
  const DrainedEngines second(path_);
  // A file's timestamp has the granularity of the kernel's tick.
  EXPECT_GE(*second.Since("a"), since - absl::Milliseconds(20));
  EXPECT_LE(*second.Since("a"), SteadyNow());
}

TEST_F(DrainedEnginesTest, GpuIsEmptiedUntilAnyDrainOnItEnds) {
  DrainedEngines first(path_);
  ASSERT_TRUE(first.Set({"a"}, true).ok());
  EXPECT_FALSE(first.empties());
  ASSERT_TRUE(first.Empty({"b"}).ok());
  DrainedEngines second(path_);
  EXPECT_TRUE(second.empties());
  EXPECT_TRUE(second.Has("a"));
  EXPECT_TRUE(second.Has("b"));
  EXPECT_FALSE(second.Has("planned"));
  ASSERT_TRUE(second.Set({"b"}, false).ok());
  EXPECT_FALSE(second.empties());
  EXPECT_TRUE(second.Has("a"));
}

TEST_F(DrainedEnginesTest, DrainThatCannotBeKeptIsNone) {
  DrainedEngines drained(folder_ + "/none/GPU-1.drained");
  const absl::Status s = drained.Set({"a"}, true);
  EXPECT_THAT(std::string(s.message()), HasSubstr("cannot write"));
  EXPECT_FALSE(drained.Has("a"));
}

}  // namespace
}  // namespace fineserve::admission

#include "tools/up/oom_watch.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tools/fsctl/terminal/fabricated_moment.h"
#include "tools/up/folder_fixture.h"

namespace fineserve::fsctl {
namespace {

class OomWatchTest : public FolderTest {
 protected:
  void Count(int kills) const {
    std::ofstream(folder() + "/vmstat")
        << "pgfault 9\noom_kill " << kills << "\npgsteal 7\n";
  }
};

TEST_F(OomWatchTest, KernelThatKillsIsNoticedForAMoment) {
  OomWatch watch(folder() + "/vmstat");
  Count(4);
  watch.Look(kTestSecond);
  EXPECT_FALSE(watch.KilledLately(kTestSecond)) << "that was before";
  Count(5);
  watch.Look(2 * kTestSecond);
  EXPECT_TRUE(watch.KilledLately(3 * kTestSecond));
  watch.Look(3 * kTestSecond);
  EXPECT_FALSE(watch.KilledLately(2 * kTestSecond + OomWatch::kLatelyNs));
}

TEST_F(OomWatchTest, KernelThatDoesNotCountIsNotBlamed) {
  OomWatch watch(folder() + "/none");
  watch.Look(kTestSecond);
  watch.Look(2 * kTestSecond);
  EXPECT_FALSE(watch.KilledLately(2 * kTestSecond));
}

}  // namespace
}  // namespace fineserve::fsctl

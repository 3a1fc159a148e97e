#include "tools/up/orphan_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace fineserve::fsctl {
namespace {

TEST(OrphanWatchTest, AnEngineIsKnownByItsProcessGroup) {
  int looks = 0;
  std::vector<pid_t> holders = {getpid()};
  OrphanWatch watch([&] {
    ++looks;
    return holders;
  });
  EXPECT_FALSE(watch.Has(getpgrp()));
  watch.Turn(1);
  EXPECT_TRUE(watch.Has(getpgrp()));
  EXPECT_FALSE(watch.Has(getpgrp() + 1));
  watch.Turn(2);
  EXPECT_EQ(looks, 1) << "all processes are looked at: not at each turn";
  holders.clear();
  watch.Turn(10'000'000'000);
  EXPECT_FALSE(watch.Has(getpgrp()));
}

TEST(OrphanWatchTest, HolderThatHasEndedIsNone) {
  OrphanWatch watch([] { return std::vector<pid_t>{-1, 1 << 30}; });
  watch.Turn(1);
  EXPECT_FALSE(watch.Has(0));
}

}  // namespace
}  // namespace fineserve::fsctl

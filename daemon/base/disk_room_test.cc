#include "daemon/base/disk_room.h"

#include <gtest/gtest.h>
#include <sys/statvfs.h>

namespace fineserve::base {
namespace {

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

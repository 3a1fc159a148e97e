#include "tools/fsctl/process/address_map.h"

#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

constexpr char kMaps[] =
    "00001000-00002000 r--p 00000000 08:01 77 /opt/my lib/libtorch.so\n"
    "00002000-00003000 r-xp 00001000 08:01 77 /opt/my lib/libtorch.so\n"
    "00008000-00009800 rw-p 00000000 00:00 0 \n"
    "0000a000-0000b000 rw-p 00000000 00:00 0 [heap]\n"
    "garbage\n"
    "7fff0000-7fff1000 r-xp 00000000 08:01 78 /usr/lib/libevil\x1b[2J.so "
    "(deleted)\n";

TEST(AddressMapTest, OffsetCountsFromTheModulesLowestMapping) {
  const AddressMap map = AddressMap::Parse(kMaps);
  EXPECT_EQ(map.Name(0x2010), "libtorch.so+0x1010");
  EXPECT_EQ(map.Name(0x1000), "libtorch.so+0x0");
}

TEST(AddressMapTest, AddressOutsideOfFilesStaysANumber) {
  const AddressMap map = AddressMap::Parse(kMaps);
  EXPECT_EQ(map.Name(0x3000), "0x3000");  // one behind the end
  EXPECT_EQ(map.Name(0x8100), "0x8100");
  EXPECT_EQ(map.Name(0xa100), "0xa100");
  EXPECT_EQ(map.Name(0x10), "0x10");
  EXPECT_EQ(AddressMap::Parse("").Name(1), "0x1");
}

TEST(AddressMapTest, ModulesAreFoundByNameAndPrintedSafely) {
  const AddressMap map = AddressMap::Parse(kMaps);
  EXPECT_TRUE(map.HasModule("libtorch.so"));
  EXPECT_FALSE(map.HasModule("torch.so"));
  EXPECT_EQ(map.Name(0x7fff0001), "libevil?[2J.so (deleted)+0x1");
}

}  // namespace
}  // namespace fineserve::fsctl

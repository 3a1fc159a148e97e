#include "tools/fsctl/processes/address_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/fsctl/processes/inspected_process.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

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

// A function whose mangled name is unique.
int CodeSymbolsProbe(int x) { return x * 31; }

namespace {

TEST(CodeSymbolsTest, AddressInThisProgramIsNamedAndDemangled) {
  AddressMap map = AddressMap::Parse(ReadFile("/proc/self/maps"));
  map.NameFunctionsUnder("/proc/self/root");
  const auto address = reinterpret_cast<uint64_t>(&CodeSymbolsProbe) + 2;
  EXPECT_THAT(map.Name(address),
              HasSubstr("fineserve::fsctl::CodeSymbolsProbe(int)+0x1 "
                        "(fsctl_processes_test+0x"));
}

TEST(CodeSymbolsTest, OtherFileHasNoNames) {
  EXPECT_EQ(CodeSymbols::Parse("").Name(0), "");
  EXPECT_EQ(CodeSymbols::Parse("#!/bin/sh\n").Name(0), "");
  EXPECT_EQ(CodeSymbols::Read("/nonexistent").Name(0), "");
}

// Tables that point beyond the end of the file are ignored.
TEST(CodeSymbolsTest, CutFilesAreReadWithinTheirBounds) {
  const std::string whole = ReadFile("/proc/self/exe");
  for (size_t bytes = 64; bytes < whole.size(); bytes += whole.size() / 50) {
    std::string cut = whole.substr(0, bytes);
    // The section table is at the file's end, so move it into the part that is
    // left.
    const uint64_t offset = bytes / 2;
    cut.replace(0x28, sizeof(offset), reinterpret_cast<const char*>(&offset),
                sizeof(offset));
    CodeSymbols::Parse(cut).Name(0x1000);
  }
}

}  // namespace

}  // namespace fineserve::fsctl

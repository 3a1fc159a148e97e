#include "tools/fsctl/process/code_symbols.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/fsctl/process/address_map.h"
#include "tools/fsctl/process/read_file.h"

namespace fineserve::fsctl {

// A function whose mangled name is unique.
int CodeSymbolsProbe(int x) { return x * 31; }

namespace {

using ::testing::HasSubstr;

TEST(CodeSymbolsTest, AddressInThisProgramIsNamedAndDemangled) {
  AddressMap map = AddressMap::Parse(ReadFile("/proc/self/maps"));
  map.NameFunctionsUnder("/proc/self/root");
  const auto address = reinterpret_cast<uint64_t>(&CodeSymbolsProbe) + 2;
  EXPECT_THAT(map.Name(address),
              HasSubstr("fineserve::fsctl::CodeSymbolsProbe(int)+0x1 "
                        "(fsctl_process_test+0x"));
}

TEST(CodeSymbolsTest, WhatIsNoElfFileHasNoNames) {
  EXPECT_EQ(CodeSymbols::Parse("").Name(0), "");
  EXPECT_EQ(CodeSymbols::Parse("#!/bin/sh\n").Name(0), "");
  EXPECT_EQ(CodeSymbols::Read("/nonexistent").Name(0), "");
}

// Tables that point beyond the end of the file are ignored.
TEST(CodeSymbolsTest, CutFilesAreReadWithinTheirBounds) {
  const std::string whole = ReadFile("/proc/self/exe");
  for (size_t bytes = 64; bytes < whole.size(); bytes += whole.size() / 50) {
    std::string cut = whole.substr(0, bytes);
    // The section table is at the file's end; move it into what is left.
    const uint64_t offset = bytes / 2;
    cut.replace(0x28, sizeof(offset), reinterpret_cast<const char*>(&offset),
                sizeof(offset));
    CodeSymbols::Parse(cut).Name(0x1000);
  }
}

}  // namespace
}  // namespace fineserve::fsctl

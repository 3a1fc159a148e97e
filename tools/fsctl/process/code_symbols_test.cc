#include "tools/fsctl/process/code_symbols.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tools/fsctl/process/address_map.h"

namespace fineserve::fsctl {

// Has a mangled name of its own.
int CodeSymbolsProbe(int x) { return x * 31; }

namespace {

using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

TEST(CodeSymbolsTest, AddressInThisProgramIsNamedAndDemangled) {
  AddressMap map = AddressMap::Parse(Contents("/proc/self/maps"));
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

// Tables that point behind the end must be read as nothing.
TEST(CodeSymbolsTest, CutFilesAreReadWithinTheirBounds) {
  const std::string whole = Contents("/proc/self/exe");
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

#include "shim/classify/frame_step.h"

#include <gtest/gtest.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "shim/host/elf_module.h"

namespace fineserve::shim {
namespace {

using Kind = FrameStep::Kind;

// One row of readelf's output: how each register is found, such as "rsp+16" for
// the CFA or "c-8" for a register saved 8 bytes below the CFA. "u": not saved.
using Row = std::map<std::string, std::string>;

// Returns the rows of a library's unwind table as readelf prints them, by
// address from its base.
std::map<uint64_t, Row> RowsOfReadelf(const std::string& path) {
  std::map<uint64_t, Row> rows;
  const std::string command =
      "LC_ALL=C readelf -wN --debug-dump=frames-interp '" + path +
      "' 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"),
                                                   &pclose);
  if (pipe == nullptr) return rows;
  std::vector<std::string> columns;
  bool function = false;  // an FDE, not a CIE
  char line[512];
  while (fgets(line, sizeof(line), pipe.get()) != nullptr) {
    std::istringstream words(line);
    const std::vector<std::string> cells{
        std::istream_iterator<std::string>(words), {}};
    if (cells.size() > 3 && (cells[3] == "FDE" || cells[3] == "CIE")) {
      function = cells[3] == "FDE";
    } else if (!cells.empty() && cells[0] == "LOC") {
      columns = cells;
    } else if (function && cells.size() == columns.size() && cells.size() > 1) {
      Row& row = rows[strtoull(cells[0].c_str(), nullptr, 16)];
      row.clear();
      for (size_t i = 1; i < cells.size(); ++i) row[columns[i]] = cells[i];
    }
  }
  return rows;
}

// Returns the step in readelf's notation.
Row InWords(const FrameStep& step) {
  if (step.kind == Kind::kLast) return {{"ra", "u"}};
  const std::string base = step.from_rbp ? "rbp+" : "rsp+";
  return {
      {"CFA", base + std::to_string(step.cfa_words * 8)},
      {"rbp",
       step.rbp_words == 0 ? "u" : "c-" + std::to_string(step.rbp_words * 8)},
      {"ra", "c-8"}};
}

Row OnlyWhatCounts(Row row) {
  if (row["ra"] == "u") return {{"ra", "u"}};
  if (row["rbp"].empty()) row["rbp"] = "u";
  return {{"CFA", row["CFA"]}, {"rbp", row["rbp"]}, {"ra", row["ra"]}};
}

class FrameStepsOf : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
#if !defined(__x86_64__)
    GTEST_SKIP() << "steps are read on x86-64 only";
#endif
  }
};

// Checks every address at which a row begins, in stripped libraries that hold
// assembly as well as compiled C and C++.
TEST_P(FrameStepsOf, WholeLibraryAreReadelfsRows) {
  Module module;
  ASSERT_TRUE(FindModuleBySoname(GetParam(), &module));
  const auto rows = RowsOfReadelf(module.path);
  ASSERT_GT(rows.size(), 1000u) << "readelf (binutils) printed too few rows";
  size_t usual = 0;
  for (const auto& [offset, row] : rows) {
    const FrameStep step = ReadFrameStep(module.base + offset);
    if (step.kind == Kind::kUnusual) continue;
    ++usual;
    ASSERT_EQ(InWords(step), OnlyWhatCounts(row)) << std::hex << offset;
  }
  EXPECT_GT(static_cast<double>(usual), 0.98 * rows.size());
}

INSTANTIATE_TEST_SUITE_P(Loaded, FrameStepsOf,
                         testing::Values("libc.so.6", "libstdc++.so.6",
                                         "libm.so.6"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.find("++") != std::string::npos
                                      ? std::string("libstdcpp")
                                      : name.substr(0, name.find('.'));
                         });

TEST(FrameStepTest, AddressesOutsideEveryModuleAreUnusual) {
  const int local = 0;
  EXPECT_EQ(ReadFrameStep(0).kind, Kind::kUnusual);
  EXPECT_EQ(ReadFrameStep(reinterpret_cast<uint64_t>(&local)).kind,
            Kind::kUnusual);
  EXPECT_EQ(ReadFrameStep(UINT64_MAX).kind, Kind::kUnusual);
}

// The address is data, which no function's record covers.
TEST(FrameStepTest, AddressesOutsideEveryFunctionAreUnusual) {
  static int data = 0;
  EXPECT_EQ(ReadFrameStep(reinterpret_cast<uint64_t>(&data)).kind,
            Kind::kUnusual);
  Module libc;
  ASSERT_TRUE(FindModuleBySoname("libc.so.6", &libc));
  EXPECT_EQ(ReadFrameStep(libc.base).kind, Kind::kUnusual);
}

}  // namespace
}  // namespace fineserve::shim

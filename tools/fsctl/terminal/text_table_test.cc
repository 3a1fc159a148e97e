#include "tools/fsctl/terminal/text_table.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace fineserve::fsctl {
namespace {

TEST(TextTableTest, ColorNeedsATerminalUnlessAskedFor) {
  unsetenv("NO_COLOR");
  setenv("TERM", "xterm", 1);
  EXPECT_TRUE(UseColor("auto", true));
  EXPECT_FALSE(UseColor("auto", false));
  EXPECT_TRUE(UseColor("always", false));
  EXPECT_FALSE(UseColor("never", true));
}

TEST(TextTableTest, NoColorWinsOverAutoButNotOverAlways) {
  setenv("TERM", "xterm", 1);
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(UseColor("auto", true));
  EXPECT_TRUE(UseColor("always", true));
  setenv("NO_COLOR", "", 1);  // empty counts as unset
  EXPECT_TRUE(UseColor("auto", true));
  unsetenv("NO_COLOR");
}

TEST(TextTableTest, ColumnsAlignAndNoLineEndsInBlanks) {
  TextTable table({">N", "NAME", ">SIZE"});
  table.Add({"1", "a", "10"});
  table.Add({"100", "long name", "2"});
  table.Add({"", "x"});
  EXPECT_EQ(table.Render(false),
            "  N  NAME       SIZE\n"
            "  1  a            10\n"
            "100  long name     2\n"
            "     x\n");
}

TEST(TextTableTest, ColorsTakeNoWidth) {
  TextTable table({"A", "B"});
  table.Add({{"red", Color::kRed}, "x"});
  EXPECT_EQ(table.Render(true),
            "\x1b[1mA\x1b[0m    \x1b[1mB\x1b[0m\n"
            "\x1b[31mred\x1b[0m  x\n");
}

TEST(TextTableTest, CharactersCountAsWidthNotTheirBytes) {
  EXPECT_EQ(Width("36×64"), 5u);
  TextTable table({"A", "B"});
  table.Add({"×", "x"});
  table.Add({"yy", "z"});
  EXPECT_EQ(table.Render(false), "A   B\n×   x\nyy  z\n");
}

TEST(TextTableTest, FitCutsAtCharactersAndSaysHowManyLinesAreMissing) {
  const std::vector<Line> lines = {
      {{"3×", Color::kRed}, "45"}, {"b"}, {"c"}, {"d"}};
  EXPECT_EQ(Render(Fit(lines, 4, 80), false), "3×45\nb\nc\nd\n");
  EXPECT_EQ(Render(Fit(lines, 3, 80), false), "3×45\nb\n... 2 more\n");
  EXPECT_EQ(Render(Fit(lines, 9, 2), false), "3×\nb\nc\nd\n");
  EXPECT_EQ(Render(Fit(lines, 1, 3), false), "...\n");
  EXPECT_TRUE(Fit(lines, 0, 0).empty());
}

TEST(TextTableTest, ColumnsGoUntilTheRestFits) {
  TextTable table({"NAME", ">AGE", "NOTE"});
  table.Add({"a", "100", "long note"});
  const auto within = [&](size_t width) {
    return Render(table.LinesWithin(width, {"AGE", "NOTE"}), false);
  };
  EXPECT_EQ(within(20), "NAME  AGE  NOTE\na     100  long note\n");
  EXPECT_EQ(within(19), "NAME  NOTE\na     long note\n");
  EXPECT_EQ(within(14), "NAME\na\n");
  EXPECT_EQ(within(1), "NAME\na\n") << "it is not expendable";
}

}  // namespace
}  // namespace fineserve::fsctl

#include "daemon/config/toml_text.h"

#include <gtest/gtest.h>

namespace fineserve::config {
namespace {

struct Case {
  const char* name;
  const char* text;
  uint32_t line;  // 0: none
};

class TomlTextTest : public ::testing::TestWithParam<Case> {};

TEST_P(TomlTextTest, FindsTheFirstStrayCharacter) {
  EXPECT_EQ(LineOfStrayCharacter(GetParam().text).value_or(0), GetParam().line);
}

INSTANTIATE_TEST_SUITE_P(
    TomlTextTable, TomlTextTest,
    ::testing::Values(
        Case{"Empty", "", 0}, Case{"Ascii", "a = 1\n", 0},
        Case{"Comment", "# für\na = 1", 0}, Case{"String", "a = \"ü\"\n", 0},
        Case{"Literal", "a = 'ü\\'\nb = 1", 0},
        Case{"ByteOrderMark",
             "\xef\xbb\xbf"
             "a = 1",
             0},
        Case{"Key", "a = 1\n\xc3\x91 = 2", 2},
        Case{"AfterAValue", "a = 1 \xc3\x91", 1},
        Case{"AfterAString", "a = \"\" \xc3\x91", 1},
        Case{"EscapedQuote", "a = \"\\\"\xc3\x91\"\n", 0},
        Case{"AfterAnEscapedBackslash", "a = \"\\\\\"\xc3\x91", 1},
        Case{"Lines", "a = \"\"\"\n\xc3\x91 \" \"\" \n\"\"\"\nb = 1", 0},
        Case{"AfterLines", "a = '''\n\n'''\n\xc3\x91", 4},
        Case{"StringWithoutEnd", "a = \"b\n\xc3\x91", 2},
        Case{"HashInAString", "a = \"#\" \xc3\x91", 1},
        Case{"LastBackslash", "a = \"\\", 0}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fineserve::config

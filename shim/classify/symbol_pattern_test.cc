#include "shim/classify/symbol_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::shim {
namespace {

struct PatternCase {
  const char* name;
  const char* pattern;
  const char* text;
  bool matches;
};

class MatchesTable : public testing::TestWithParam<PatternCase> {};

TEST_P(MatchesTable, Decides) {
  EXPECT_EQ(Matches(GetParam().pattern, GetParam().text), GetParam().matches);
}

INSTANTIATE_TEST_SUITE_P(
    , MatchesTable,
    testing::Values(
        PatternCase{"WholeNameOnly", "foo", "foo2", false},
        PatternCase{"PrefixIsNotEnough", "foo2", "foo", false},
        PatternCase{"StarTakesNothing", "a*b", "ab", true},
        PatternCase{"StarTakesMuch", "a*b", "axbxb", true},
        PatternCase{"StarAtTheEnd", "_Z*1a1b*", "_ZN2ns1a1bEv", true},
        PatternCase{"EarlierStarIsNotExtended", "a*bc*d", "axbcyybcd", true},
        PatternCase{"NoMatchBehindAStar", "a*b", "axc", false},
        PatternCase{"SecondAlternative", "foo|_Z*3foo*", "_ZL3fooi", true},
        PatternCase{"NeitherAlternative", "foo|_Z*3foo*", "_ZL4food", false},
        PatternCase{"AlternativesDoNotMix", "ab|cd", "ad", false},
        PatternCase{"ConstructorOfTheClass", "_Z*14llama_kv_cacheC*",
                    "_ZN14llama_kv_cacheC2ERK11llama_modelj", true},
        PatternCase{"ClassAsAnArgumentIsNone", "_Z*14llama_kv_cacheC*",
                    "_Z4sizeRK14llama_kv_cache", false},
        PatternCase{"EmptyText", "a|b", "", false},
        PatternCase{"Empty", "", "", true}),
    [](const auto& info) { return info.param.name; });

// The worst pattern that a peer may send takes at most |pattern| × |text|
// steps.
TEST(Matches, ManyStarsAgainstALongNameEnd) {
  std::string pattern;
  while (pattern.size() < 190) pattern += "*a";
  EXPECT_FALSE(Matches((pattern + "b").c_str(), std::string(511, 'a').c_str()));
}

}  // namespace
}  // namespace fineserve::shim

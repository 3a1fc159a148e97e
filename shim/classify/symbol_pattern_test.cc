#include "shim/classify/symbol_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::shim {
namespace {

struct Case {
  const char* name;
  const char* pattern;
  const char* text;
  bool matches;
};

class MatchesTable : public testing::TestWithParam<Case> {};

TEST_P(MatchesTable, Decides) {
  EXPECT_EQ(Matches(GetParam().pattern, GetParam().text), GetParam().matches);
}

INSTANTIATE_TEST_SUITE_P(
    , MatchesTable,
    testing::Values(
        Case{"WholeNameOnly", "foo", "foo2", false},
        Case{"PrefixIsNotEnough", "foo2", "foo", false},
        Case{"StarTakesNothing", "a*b", "ab", true},
        Case{"StarTakesMuch", "a*b", "axbxb", true},
        Case{"StarAtTheEnd", "_Z*1a1b*", "_ZN2ns1a1bEv", true},
        Case{"EarlierStarIsNotExtended", "a*bc*d", "axbcyybcd", true},
        Case{"NoMatchBehindAStar", "a*b", "axc", false},
        Case{"SecondAlternative", "foo|_Z*3foo*", "_ZL3fooi", true},
        Case{"NeitherAlternative", "foo|_Z*3foo*", "_ZL4food", false},
        Case{"AlternativesDoNotMix", "ab|cd", "ad", false},
        Case{"ConstructorOfTheClass", "_Z*14llama_kv_cacheC*",
             "_ZN14llama_kv_cacheC2ERK11llama_modelj", true},
        Case{"ClassAsAnArgumentIsNone", "_Z*14llama_kv_cacheC*",
             "_Z4sizeRK14llama_kv_cache", false},
        Case{"EmptyText", "a|b", "", false}, Case{"Empty", "", "", true}),
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

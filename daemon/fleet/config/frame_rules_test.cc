#include "daemon/fleet/config/frame_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::config {
namespace {

using ::testing::HasSubstr;

struct Translation {
  const char* name;
  const char* function;
  const char* pattern;
};

class SymbolPatternTable : public testing::TestWithParam<Translation> {};

TEST_P(SymbolPatternTable, Translates) {
  const auto pattern = SymbolPattern(GetParam().function);
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  EXPECT_EQ(*pattern, GetParam().pattern);
}

INSTANTIATE_TEST_SUITE_P(
    , SymbolPatternTable,
    testing::Values(
        Translation{"PlainName", "my_malloc", "my_malloc|_Z*9my_malloc*"},
        Translation{"Nested", "WindowBlockManager::allocatePools",
                    "_Z*18WindowBlockManager13allocatePools*"},
        Translation{"Constructor", "llama_kv_cache::llama_kv_cache",
                    "_Z*14llama_kv_cacheC*"},
        Translation{"Destructor", "a::b::~b", "_Z*1a1bD*"},
        Translation{"Wildcard", "Kv*::make", "_Z*Kv*4make*"},
        Translation{"WildcardAlone", "kv_*_new", "kv_*_new|_Z*kv_*_new*"},
        Translation{"Mangled", "_ZN1a1bEv", "_ZN1a1bEv"}),
    [](const auto& info) { return info.param.name; });

TEST(SymbolPatternTest, OtherTextIsRefusedWithAnExample) {
  for (const char* bad : {"", "::", "a::", "f(int)", "v<int>::f", "a b", "*",
                          "a**b", "9a", "~a", "a|b", "a::~b", "a::*::b"}) {
    const auto pattern = SymbolPattern(bad);
    ASSERT_FALSE(pattern.ok()) << bad;
    EXPECT_THAT(std::string(pattern.status().message()),
                HasSubstr("write it like"));
  }
}

TEST(SymbolPatternTest, PatternKeepsToItsRoom) {
  EXPECT_TRUE(SymbolPattern("_Z" + std::string(189, 'a')).ok());
  EXPECT_FALSE(SymbolPattern("_Z" + std::string(190, 'a')).ok());
}

}  // namespace
}  // namespace fineserve::config

#include "shim/classify/rule_matcher.h"

#include <dlfcn.h>
#include <errno.h>
#include <gmock/gmock.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <string.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/transport.h"

// Named functions. Their bodies differ, because a linker may fold equal ones.
extern "C" {
int frames_inner(int x) { return x + 11; }
int frames_middle(int x) { return x * 13; }
int frames_outer(int x) { return x - 17; }
__attribute__((visibility("hidden"))) int frames_local(int x) { return x ^ 19; }
}

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

using abi::kMiB;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Returns a return address in a function: one byte after its start.
template <typename Function>
uint64_t In(Function* function) {
  return reinterpret_cast<uint64_t>(function) + 1;
}

abi::Rule MakeRule(const char* name, const std::vector<const char*>& frames,
                   bool kv = true) {
  abi::Rule rule = {};
  abi::CopyText(rule.name, name);
  for (const char* f : frames)
    abi::CopyText(rule.frames[rule.frame_count++], f);
  rule.max_bytes = UINT64_MAX;
  rule.kv = kv;
  return rule;
}

TEST(NameCodeTest, NamesComeFromTheLoadedTableAndFromTheFile) {
  auto buffer = std::make_unique<NamingBuffer>();
  const uint64_t ips[] = {In(&frames_local), In(&gnu_get_libc_version), 0x10,
                          In(&frames_inner)};
  NameCode(ips, 4, buffer.get());
  EXPECT_STREQ(buffer->names[0].symbol, "frames_local");  // in .symtab only
  EXPECT_STREQ(buffer->names[0].module, program_invocation_short_name);
  EXPECT_STREQ(buffer->names[1].symbol, "gnu_get_libc_version");
  EXPECT_THAT(buffer->names[1].module, StartsWith("libc.so"));
  EXPECT_STREQ(buffer->names[2].symbol, "");
  EXPECT_STREQ(buffer->names[2].module, "");
  EXPECT_STREQ(buffer->names[3].symbol, "frames_inner");
}

TEST(NameCodeTest, LibraryWithTheOldHashTableIsNamedToo) {
  void* const library = dlopen(SYSV_LIBRARY, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  auto buffer = std::make_unique<NamingBuffer>();
  const uint64_t ip =
      reinterpret_cast<uint64_t>(dlsym(library, "probe_next")) + 1;
  NameCode(&ip, 1, buffer.get());
  EXPECT_STREQ(buffer->names[0].symbol, "probe_next");
  EXPECT_THAT(buffer->names[0].module, HasSubstr("sysv_probe"));
}

// `dlclose` must change the count, because otherwise a cache would trust
// addresses that now hold other code.
TEST(UnloadCountTest, GrowsWithEveryModuleThatGoes) {
  const uint64_t before = UnloadCount();
  void* const library = dlopen(PROBE_LIBRARY, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(UnloadCount(), before);
  dlclose(library);
  EXPECT_GT(UnloadCount(), before);
}

class RuleMatcherTest : public ::testing::Test {
 protected:
  void Set(const std::vector<abi::Rule>& rules) {
    EXPECT_TRUE(rules_->Set(rules.data(), static_cast<uint32_t>(rules.size())));
  }
  RuleMatch Match(const std::vector<uint64_t>& ips, uint64_t bytes = kMiB) {
    return rules_->Match(ips.data(), ips.size(), bytes);
  }

  const std::vector<uint64_t> stack_ = {In(&frames_inner), In(&frames_middle),
                                        In(&frames_outer)};
  std::unique_ptr<RuleMatcher> rules_ = std::make_unique<RuleMatcher>();
};

TEST_F(RuleMatcherTest, FramesMatchFromInnerToOuterWithOthersBetween) {
  Set({MakeRule("r", {"frames_inner", "frames_outer"})});
  const RuleMatch match = Match(stack_);
  EXPECT_TRUE(match.found && match.kv);
  EXPECT_STREQ(match.name, "r");
}

TEST_F(RuleMatcherTest, OtherOrderDoesNotMatch) {
  Set({MakeRule("r", {"frames_outer", "frames_inner"})});
  EXPECT_FALSE(Match(stack_).found);
}

TEST_F(RuleMatcherTest, OneFrameDoesNotStandForTwo) {
  Set({MakeRule("r", {"frames_i*", "frames_inn*"})});
  EXPECT_FALSE(Match(stack_).found);
}

TEST_F(RuleMatcherTest, StackThatWasSeenIsJudgedTheSame) {
  Set({MakeRule("r", {"frames_middle"})});
  EXPECT_TRUE(Match(stack_).found);
  EXPECT_TRUE(Match(stack_).found);
  EXPECT_FALSE(Match({stack_[0], stack_[2]}).found);
}

TEST_F(RuleMatcherTest, FirstRuleThatMatchesDecides) {
  Set({MakeRule("scratch", {"frames_inner", "frames_middle"}, false),
       MakeRule("kv", {"frames_inner"})});
  EXPECT_STREQ(Match(stack_).name, "scratch");
  EXPECT_FALSE(Match(stack_).kv);
  EXPECT_STREQ(Match({stack_[0], stack_[2]}).name, "kv");
}

TEST_F(RuleMatcherTest, SizesBoundARuleInclusively) {
  abi::Rule rule = MakeRule("r", {"frames_inner"});
  rule.min_bytes = 4 * kMiB;
  rule.max_bytes = 8 * kMiB;
  Set({rule});
  EXPECT_FALSE(Match(stack_, 4 * kMiB - 1).found);
  EXPECT_TRUE(Match(stack_, 4 * kMiB).found);
  EXPECT_TRUE(Match(stack_, 8 * kMiB).found);
  EXPECT_FALSE(Match(stack_, 8 * kMiB + 1).found);
}

TEST_F(RuleMatcherTest, ModuleBindsTheInnermostNamedFrame) {
  abi::Rule rule = MakeRule("r", {"frames_inner"});
  abi::CopyText(rule.module, "shim_*");
  Set({rule});
  EXPECT_TRUE(Match(stack_).found);
  abi::CopyText(rule.module, "libother.so");
  Set({rule});
  EXPECT_FALSE(Match(stack_).found);
}

TEST_F(RuleMatcherTest, ModuleAloneIsARule) {
  abi::Rule rule = MakeRule("r", {});
  abi::CopyText(rule.module, "libc.so*");
  Set({rule});
  EXPECT_FALSE(Match(stack_).found);
  EXPECT_TRUE(Match({stack_[0], In(&gnu_get_libc_version)}).found);
}

TEST_F(RuleMatcherTest, NewRulesReplaceWhatWasKnown) {
  Set({MakeRule("r", {"frames_inner"})});
  EXPECT_TRUE(Match(stack_).found);
  Set({MakeRule("r", {"no_such_function"})});
  EXPECT_FALSE(Match(stack_).found);
  Set({});
  EXPECT_TRUE(rules_->empty());
}

TEST_F(RuleMatcherTest, FramesWithoutANameAreCounted) {
  Set({MakeRule("r", {"frames_inner"})});
  EXPECT_EQ(Match({0x10, 0x20, In(&frames_outer)}).unnamed_frames, 2);
  EXPECT_EQ(Match({0x10, 0x20, In(&frames_outer)}).unnamed_frames, 2);
}

TEST_F(RuleMatcherTest, MoreStacksThanPlacesAreStillJudgedRight) {
  Set({MakeRule("r", {"frames_inner"})});
  // Each byte in a stretch of libc acts as a call site.
  for (uint64_t i = 0; i < 5000; ++i) {
    ASSERT_FALSE(Match({In(&gnu_get_libc_version) + i}).found);
    ASSERT_TRUE(Match({In(&gnu_get_libc_version) + i, stack_[0]}).found);
  }
}

TEST_F(RuleMatcherTest, MalformedRuleIsLeftOutAndReported) {
  abi::Rule endless = MakeRule("r", {"frames_inner"});
  memset(endless.frames[0], 'x', sizeof(endless.frames[0]));
  abi::Rule empty = MakeRule("r", {});
  abi::Rule many = MakeRule("r", {"f"});
  many.frame_count = 5;
  const abi::Rule rules[] = {endless, empty, many,
                             MakeRule("good", {"frames_inner"})};
  EXPECT_FALSE(rules_->Set(rules, 4));
  EXPECT_STREQ(Match(stack_).name, "good");
}

TEST_F(RuleMatcherTest, ErrnoOfTheProgramIsKept) {
  Set({MakeRule("r", {"frames_inner"})});
  errno = 4711;
  Match(stack_);
  EXPECT_EQ(errno, 4711);
}

}  // namespace

}  // namespace fineserve::shim

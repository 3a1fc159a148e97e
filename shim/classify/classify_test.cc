#include "shim/classify/classify.h"

#include <gtest/gtest.h>

namespace fineserve::shim {
namespace {

constexpr uint64_t kMiB = 1 << 20;

constexpr RuleMatch kNone = {};
constexpr RuleMatch kSays = {.found = true, .kv = true};
constexpr RuleMatch kExcludes = {.found = true, .kv = false};

struct Case {
  const char* name;
  uint64_t bytes;
  bool in_scope;
  RuleMatch match;
  bool kv;
  abi::Reason reason;
};

class ClassifyTable : public testing::TestWithParam<Case> {};

TEST_P(ClassifyTable, GivesVerdictAndReason) {
  DeclaredSizes declared;
  const uint64_t sizes[] = {64 * kMiB, 100 * kMiB};
  declared.Set(sizes, 2);
  const Case& c = GetParam();
  const Classification got = Classify(c.bytes, c.in_scope, c.match, declared);
  EXPECT_EQ(got.kv, c.kv);
  EXPECT_EQ(got.reason, c.reason);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, ClassifyTable,
    testing::Values(Case{"ScopeMakesAnySizeKv", 512, true, kNone, true,
                         abi::Reason::kScope},
                    Case{"ScopeComesBeforeFrames", 64 * kMiB, true, kExcludes,
                         true, abi::Reason::kScope},
                    Case{"FramesMakeKv", 3 * kMiB, false, kSays, true,
                         abi::Reason::kFrames},
                    Case{"FramesComeBeforeDeclared", 64 * kMiB, false,
                         kExcludes, false, abi::Reason::kExcluded},
                    Case{"ScopeComesBeforeDeclared", 64 * kMiB, true, kNone,
                         true, abi::Reason::kScope},
                    Case{"FirstDeclaredSizeIsKv", 64 * kMiB, false, kNone, true,
                         abi::Reason::kDeclaredSize},
                    Case{"LastDeclaredSizeIsKv", 100 * kMiB, false, kNone, true,
                         abi::Reason::kDeclaredSize},
                    Case{"OneByteMoreIsNot", 64 * kMiB + 1, false, kNone, false,
                         abi::Reason::kNotKv},
                    Case{"OneByteLessIsNot", 64 * kMiB - 1, false, kNone, false,
                         abi::Reason::kNotKv},
                    Case{"LargeAloneIsNot", 8192 * kMiB, false, kNone, false,
                         abi::Reason::kNotKv},
                    Case{"ZeroIsNot", 0, false, kNone, false,
                         abi::Reason::kNotKv}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fineserve::shim

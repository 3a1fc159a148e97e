#include "shim/classify/classify.h"

#include <gtest/gtest.h>

#include "daemon/abi/byte_size.h"

namespace fineserve::shim {
namespace {

using abi::kMiB;

constexpr RuleMatch kNone = {};
constexpr RuleMatch kSays = {.found = true, .kv = true};
constexpr RuleMatch kExcludes = {.found = true, .kv = false};

struct VerdictCase {
  const char* name;
  uint64_t bytes;
  bool in_scope;
  RuleMatch match;
  bool kv;
  abi::Reason reason;
};

class ClassifyTable : public testing::TestWithParam<VerdictCase> {};

TEST_P(ClassifyTable, GivesVerdictAndReason) {
  DeclaredSizes declared;
  const uint64_t sizes[] = {64 * kMiB, 100 * kMiB};
  declared.Set(sizes, 2);
  const VerdictCase& c = GetParam();
  const Classification got = Classify(c.bytes, c.in_scope, c.match, declared);
  EXPECT_EQ(got.kv, c.kv);
  EXPECT_EQ(got.reason, c.reason);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, ClassifyTable,
    testing::Values(VerdictCase{"ScopeMakesAnySizeKv", 512, true, kNone, true,
                                abi::Reason::kScope},
                    VerdictCase{"ScopeComesBeforeFrames", 64 * kMiB, true,
                                kExcludes, true, abi::Reason::kScope},
                    VerdictCase{"FramesMakeKv", 3 * kMiB, false, kSays, true,
                                abi::Reason::kFrames},
                    VerdictCase{"FramesComeBeforeDeclared", 64 * kMiB, false,
                                kExcludes, false, abi::Reason::kExcluded},
                    VerdictCase{"ScopeComesBeforeDeclared", 64 * kMiB, true,
                                kNone, true, abi::Reason::kScope},
                    VerdictCase{"FirstDeclaredSizeIsKv", 64 * kMiB, false,
                                kNone, true, abi::Reason::kDeclaredSize},
                    VerdictCase{"LastDeclaredSizeIsKv", 100 * kMiB, false,
                                kNone, true, abi::Reason::kDeclaredSize},
                    VerdictCase{"OneByteMoreIsNot", 64 * kMiB + 1, false, kNone,
                                false, abi::Reason::kNotKv},
                    VerdictCase{"OneByteLessIsNot", 64 * kMiB - 1, false, kNone,
                                false, abi::Reason::kNotKv},
                    VerdictCase{"LargeAloneIsNot", 8192 * kMiB, false, kNone,
                                false, abi::Reason::kNotKv},
                    VerdictCase{"ZeroIsNot", 0, false, kNone, false,
                                abi::Reason::kNotKv}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fineserve::shim

#include "shim/classify/classify.h"

#include <gtest/gtest.h>

#include <string>

#include "daemon/contract/abi/byte_size.h"

namespace fineserve::shim {
namespace {

using abi::kMiB;

TEST(DeclaredSizes, SetReplacesWhatWasDeclared) {
  DeclaredSizes declared;
  const uint64_t first[] = {64 * kMiB, 100 * kMiB};
  const uint64_t second[] = {200 * kMiB};
  declared.Set(first, 2);
  declared.Set(second, 1);
  EXPECT_TRUE(declared.Contains(200 * kMiB));
  EXPECT_FALSE(declared.Contains(64 * kMiB));
  EXPECT_FALSE(declared.Contains(100 * kMiB));
}

TEST(DeclaredSizes, NothingDeclaredContainsNothing) {
  EXPECT_FALSE(DeclaredSizes().Contains(0));
}

TEST(ParseSizes, TakesSpelledAndPlainSizes) {
  uint64_t sizes[abi::kDeclaredSizeCapacity];
  ASSERT_EQ(ParseSizes("64MiB,67108864,2G", sizes), 3u);
  EXPECT_EQ(sizes[0], 64 * kMiB);
  EXPECT_EQ(sizes[1], 64 * kMiB);
  EXPECT_EQ(sizes[2], 2048 * kMiB);
}

TEST(ParseSizes, WarnsOfEachItemItSkips) {
  uint64_t sizes[abi::kDeclaredSizeCapacity];
  testing::internal::CaptureStderr();
  ASSERT_EQ(ParseSizes("oops,1MiB,,4MiB", sizes), 1u);
  const std::string warned = testing::internal::GetCapturedStderr();
  EXPECT_EQ(sizes[0], 4 * kMiB);
  EXPECT_NE(warned.find("\"oops\" is not a size"), std::string::npos) << warned;
  EXPECT_NE(warned.find("1MiB is ignored because it is under 2MiB"),
            std::string::npos)
      << warned;
}

TEST(ParseSizes, StopsAtTheCapacity) {
  std::string list;
  for (int i = 0; i < 40; ++i) list += "4MiB,";
  uint64_t sizes[abi::kDeclaredSizeCapacity];
  testing::internal::CaptureStderr();
  EXPECT_EQ(ParseSizes(list.c_str(), sizes), abi::kDeclaredSizeCapacity);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("only the first 32"),
            std::string::npos);
}

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

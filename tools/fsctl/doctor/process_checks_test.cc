#include "tools/fsctl/doctor/process_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/fsctl/processes/fabricated_scoreboard.h"

namespace fineserve::fsctl {
namespace {

using abi::Hook;
using abi::Path;
using ::testing::HasSubstr;
using Severity = Finding::Severity;

constexpr uint64_t kMiB = 1 << 20;

AddressMap MapOf(const std::string& name) {
  return AddressMap::Parse("1000-2000 r-xp 0 08:01 77 /lib/" + name + "\n");
}

TEST(CheckPreloadTest, SaysWhyTheShimIsMissing) {
  EXPECT_EQ(CheckPreload(MapOf("libfineserve_shim.so"), "").severity,
            Severity::kOk);
  EXPECT_THAT(CheckPreload(MapOf("program"), "").what,
              HasSubstr("statically linked"));
  EXPECT_THAT(CheckPreload(MapOf("ld-linux-x86-64.so.2"), "").what,
              HasSubstr("does not name the shim"));
  EXPECT_THAT(CheckPreload(MapOf("ld-linux-x86-64.so.2"),
                           "LD_PRELOAD=/x/libfineserve_shim.so")
                  .what,
              HasSubstr("the loader ignored it"));
}

TEST(CheckHooksTest, NamesEachSymbolWithItsChannels) {
  abi::ScoreboardSnapshot scoreboard = FabricateScoreboard();
  abi::HookUse use{Hook::kMemAlloc, {}};
  use.uses[static_cast<size_t>(Path::kHandle)] = 2;
  use.uses[static_cast<size_t>(Path::kResolver2)] = 7;
  use.uses[static_cast<size_t>(Path::kCalled)] = 5;
  scoreboard.hooks = {use};
  const auto checks = CheckHooks(scoreboard, MapOf("libcuda.so.1"));
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].name, "cuMemAlloc_v2");
  EXPECT_THAT(checks[0].what, HasSubstr("handed out by dlsym of a library 2, "
                                        "cuGetProcAddress_v2 7; called 5"));
}

TEST(CheckHooksTest, DriverWithoutAHookIsAWarning) {
  abi::ScoreboardSnapshot scoreboard = FabricateScoreboard();
  scoreboard.hooks = {{Hook::kDlopen, {1}}};
  const auto checks = CheckHooks(scoreboard, MapOf("libcuda.so.1"));
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[1].severity, Severity::kNote);
  EXPECT_EQ(CheckHooks(scoreboard, MapOf("libm.so")).size(), 1u);
}

TEST(CheckMemoryTest, OnlyWhatNothingAccountsForBypassedTheHooks) {
  abi::ScoreboardSnapshot scoreboard = FabricateScoreboard();
  scoreboard.small_bytes = 1 * kMiB;
  scoreboard.passed_bytes = 10 * kMiB;
  scoreboard.redirected_bytes = 5 * kMiB;
  EXPECT_EQ(CheckMemory(scoreboard, 16 * kMiB, 0).severity, Severity::kOk);
  EXPECT_EQ(CheckMemory(scoreboard, 3 * kMiB, 0).severity, Severity::kOk);
  const Finding more = CheckMemory(scoreboard, 48 * kMiB, 0);
  EXPECT_EQ(more.severity, Severity::kNote);
  EXPECT_THAT(more.what, HasSubstr("at least 32 MiB bypassed"));
  EXPECT_EQ(CheckMemory(scoreboard, 48 * kMiB, 32 * kMiB).severity,
            Severity::kOk);
  EXPECT_EQ(CheckMemory(scoreboard, absl::NotFoundError("x"), 0).severity,
            Severity::kSkipped);
}

TEST(CheckGpusTest, KvOnAGpuWhoseDaemonWasNotJoinedIsAWarning) {
  abi::ScoreboardSnapshot scoreboard = FabricateScoreboard();
  EXPECT_EQ(CheckGpus(scoreboard).severity, Severity::kOk);
  scoreboard.decisions.emplace_back().reason = abi::Reason::kOtherGpu;
  const Finding check = CheckGpus(scoreboard);
  EXPECT_EQ(check.severity, Severity::kNote);
  EXPECT_THAT(check.what, HasSubstr("1 allocations of KV on another GPU"));
}

TEST(CheckNamespacesTest, DlmopenIsAWarning) {
  abi::ScoreboardSnapshot scoreboard = FabricateScoreboard();
  EXPECT_EQ(CheckNamespaces(scoreboard).severity, Severity::kOk);
  scoreboard.foreign_namespaces = 1;
  EXPECT_EQ(CheckNamespaces(scoreboard).severity, Severity::kNote);
}

}  // namespace
}  // namespace fineserve::fsctl

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/fsctl/engines.h"
#include "tools/fsctl/fabricated.h"
#include "tools/fsctl/slabs_view.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SlabsTest, TextIsTheGoldenOne) {
  EXPECT_EQ(
      SlabsText(FabricatePool(), true, kTestNow, false),
      R"(pool      512 MiB on Test GPU (GPU-4a000000-0000-0000-0000-000000000000), emulated
daemon    pid 4711, started 5 min ago
slabs     8 of 64 MiB, each 32 granules of 2 MiB
  free             2  128 MiB
  leased           4  256 MiB
  zeroing          1  64 MiB
  returning        0  0 B
  quarantined      1  64 MiB
counters  leases granted 3, denied 1; zeroed 12 slabs (768 MiB), quarantined 0
          engines died 0, messages dropped 0, connections refused 0

[###0..!#]  . free  # full  0 zeroing  ! quarantined

SLABS  STATE        ENGINE       LEASE     SIZE   AGE
  0-2  full         1 vllm-a         5  192 MiB  60 s
    3  zeroing      -                -   64 MiB  60 s
  4-5  free         -                -  128 MiB  60 s
    6  quarantined  2 vllm-b         7   64 MiB  60 s
    7  full         9 (unknown)      8   64 MiB  60 s
)");
}

TEST(SlabsTest, WithoutFoldingEverySlabHasItsLine) {
  const std::string text = SlabsText(FabricatePool(), false, kTestNow, false);
  for (const char* line : {"\n    0  full", "\n    1  full", "\n    5  free"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("0-2")));
}

TEST(SlabsTest, DeadDaemonIsNamedWithTheProcessReadThrough) {
  Pool pool = FabricatePool();
  pool.socket.clear();
  pool.holder_pid = 4712;
  EXPECT_THAT(SlabsText(pool, true, kTestNow, false),
              HasSubstr("daemon 4711 is dead; read through engine pid 4712"));
  pool.daemon_exists = true;
  EXPECT_THAT(DaemonTrouble(pool), HasSubstr("4711 does not answer"));
}

TEST(SlabsTest, SameEngineWithAnotherLeaseIsAnotherLine) {
  Pool pool = FabricatePool();
  pool.table.slabs[2].word.lease = 6;
  const std::string text = SlabsText(pool, true, kTestNow, false);
  EXPECT_THAT(text, HasSubstr("\n  0-1  full"));
  EXPECT_THAT(text, HasSubstr("\n    2  full"));
}

TEST(SlabsTest, JsonAgreesWithTheText) {
  const auto json =
      nlohmann::json::parse(SlabsJson(FabricatePool(), true, kTestNow));
  EXPECT_EQ(json["pool_bytes"], 512 << 20);
  EXPECT_EQ(json["gpu"]["emulated"], true);
  EXPECT_EQ(json["daemon"]["epoch"], "0xfedcba9876543210");
  EXPECT_EQ(json["daemon"]["answers"], true);
  EXPECT_EQ(json["states"]["free"]["slabs"], 2);
  EXPECT_EQ(json["states"]["full"]["bytes"], 256 << 20);
  EXPECT_EQ(json["counters"]["leases_denied"], 1);
  ASSERT_EQ(json["slabs"].size(), 5u);
  EXPECT_EQ(json["slabs"][0]["last"], 2);
  EXPECT_EQ(json["slabs"][0]["engine_name"], "vllm-a");
}

TEST(SlabsTest, OneQuarantinedSlabShowsInACrowdedBar) {
  abi::TableSnapshot table;
  table.slabs.resize(1000);
  table.slabs[500].word = {abi::SlabState::kQuarantined, 1, 1};
  for (int i = 0; i < 100; ++i)
    table.slabs[i].word.state = abi::SlabState::kFull;
  const std::string bar = StateBar(table, 64);
  EXPECT_LE(bar.size(), 64u);
  EXPECT_EQ(std::count(bar.begin(), bar.end(), '!'), 1);
  EXPECT_EQ(bar[0], '#');
  EXPECT_EQ(bar.back(), '.');
}

TEST(EnginesTest, TextIsTheGoldenOne) {
  Pool pool = FabricatePool();
  pool.table.torn_engines = 1;
  EXPECT_EQ(EnginesText(pool, kTestNow, false),
            "ID  NAME    STATE        PIDS       SLABS     SIZE   AGE\n"
            " 1  vllm-a  alive        4712,4713      3  192 MiB  60 s\n"
            " 2  vllm-b  quarantined  -              1   64 MiB  60 s\n"
            "1 more being written, not shown\n");
}

TEST(EnginesTest, JsonHasPidsAndBytes) {
  const auto json =
      nlohmann::json::parse(EnginesJson(FabricatePool(), kTestNow));
  EXPECT_EQ(json["engines"][0]["pids"], nlohmann::json({4712, 4713}));
  EXPECT_EQ(json["engines"][0]["bytes"], 192 << 20);
  EXPECT_EQ(json["engines"][1]["state"], "quarantined");
}

}  // namespace
}  // namespace fineserve::fsctl

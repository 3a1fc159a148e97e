#include "tools/fsctl/slabs/slabs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/contract/abi/view_messages.h"
#include "tools/fsctl/daemons/fabricated_pool.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SlabsOutputTest, TextIsTheGoldenOne) {
  EXPECT_EQ(
      SlabsText(Observed(FabricatePool()), {}, false),
      R"(pool      512 MiB on Test GPU, emulated (GPU-4a000000-0000-0000-0000-000000000000)
daemon    pid 4711, started 5 min ago
slabs     8 of 64 MiB, each 32 granules of 2 MiB
  free             2  128 MiB
  leased           4  256 MiB
  zeroing          1  64 MiB
  returning        0  0 B
  quarantined      1  64 MiB
counters  leases granted 3, denied 1; zeroed 12 slabs (768 MiB), quarantined 0
          asked back 0 slabs, returned 0, added 0, withdrawn 0
          engines died 0, messages dropped 0, connections refused 0
          longest event of the daemon's loop 0.7 ms

[###0..!#]  . free  # full  0 zeroing  ! quarantined

SLABS  STATE        ENGINE       FORMAT  LEASE     SIZE  USED   AGE
  0-2  full         1 vllm-a     whole       5  192 MiB     -  60 s
    3  zeroing      -            -           -   64 MiB     -  60 s
  4-5  free         -            -           -  128 MiB     -  60 s
    6  quarantined  2 vllm-b     -           7   64 MiB     -  60 s
    7  full         9 (unknown)  whole       8   64 MiB     -  60 s
)");
}

TEST(SlabsOutputTest, WithoutFoldingEverySlabHasItsLine) {
  const std::string text =
      SlabsText(Observed(FabricatePool()), {.all = true}, false);
  for (const char* line : {"\n    0  full", "\n    1  full", "\n    5  free"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("0-2")));
}

TEST(SlabsOutputTest, DeadDaemonIsNamedWithTheProcessReadThrough) {
  Pool pool = FabricatePool();
  pool.socket.clear();
  pool.holder_pid = 4712;
  EXPECT_THAT(SlabsText(Observed(pool), {}, false),
              HasSubstr("daemon 4711 is dead; read through pid 4712"));
  pool.daemon_exists = true;
  EXPECT_THAT(DaemonTrouble(pool), HasSubstr("4711 does not answer"));
}

TEST(SlabsOutputTest, SameEngineWithAnotherLeaseIsAnotherLine) {
  Pool pool = FabricatePool();
  pool.table.slabs[2].word.lease = 6;
  const std::string text = SlabsText(Observed(pool), {}, false);
  EXPECT_THAT(text, HasSubstr("\n  0-1  full"));
  EXPECT_THAT(text, HasSubstr("\n    2  full"));
}

TEST(SlabsOutputTest, JsonAgreesWithTheText) {
  const auto json =
      nlohmann::json::parse(SlabsJson(Observed(FabricatePool()), {}));
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

TEST(SlabsOutputTest, ViewIsShownWithFormatDensityWasteAndWhatItMissed) {
  Observation seen = FabricateObservation();
  seen.view_scoreboards.at(1)->failed_allocations = 7;
  seen.view_scoreboards.at(1)->watermark_misses = 2;
  const std::string text = SlabsText(seen, {}, false);
  EXPECT_EQ(text.substr(text.find("view  ")),
            R"(view      1 vllm-a, pid 4712: 8×96 KiB/16, mode view
  slabs   3 leased, floor 2, target 4, wanted 5, cap 6
  blocks  124 of 254 used (48.82 %), 130 free: 45 in 1 partly used slab (33.8 MiB lost), 85 in 1 empty slab
  waste   tail 0.00 %, straddling blocks 0.78 % of each slab
  missed  failed allocations 7, watermark misses 2

[--.0-.!#]  . free  - partial  # full  0 zeroing  ! quarantined

SLABS  STATE        ENGINE       FORMAT          LEASE     SIZE          USED   AGE
  0-1  partial      1 vllm-a     8×96 KiB/16  2 leases  128 MiB  124/169 73 %  60 s
    2  free         -            -                   -   64 MiB             -  60 s
    3  zeroing      -            -                   -   64 MiB             -  60 s
    4  partial      1 vllm-a     8×96 KiB/16       104   64 MiB      0/85 0 %  60 s
    5  free         -            -                   -   64 MiB             -  60 s
    6  quarantined  2 vllm-b     -                   7   64 MiB             -  60 s
    7  full         9 (unknown)  whole               8   64 MiB             -  60 s
)");
}

TEST(SlabsOutputTest, SleepersViewIsShownAsSuspended) {
  Observation seen = FabricateObservation();
  FabricateView(1, {}, &seen);
  for (abi::EngineSnapshot& engine : seen.pool.table.engines) {
    if (engine.id == 1) engine.view.state = abi::ViewState::kSuspended;
  }
  seen.view_scoreboards.at(1) = absl::NotFoundError("it sleeps");
  seen.given_up_bytes[1] = uint64_t{14} << 30;
  const std::string text = SlabsText(seen, {}, false);
  EXPECT_THAT(text, HasSubstr("mode view, suspended\n  slabs   0 leased"));
  EXPECT_THAT(text, HasSubstr("  memory  14 GiB of the device given up"));
  EXPECT_THAT(text, Not(HasSubstr("unknown:")));
  const auto json = nlohmann::json::parse(SlabsJson(seen, {}));
  EXPECT_EQ(json["views"][0]["given_up_bytes"], uint64_t{14} << 30);
  EXPECT_TRUE(json["views"][0]["suspended"]);
  EXPECT_FALSE(json["views"][0]["active"]);
}

TEST(SlabsOutputTest, BlocksOfAProcessThatIsGoneAreUnknownNotGuessed) {
  Observation seen = FabricateObservation();
  seen.view_scoreboards.at(1) = absl::NotFoundError("pid 4712 is gone");
  const std::string text = SlabsText(seen, {}, false);
  EXPECT_THAT(text, HasSubstr("  blocks  unknown: pid 4712 is gone\n"));
  EXPECT_THAT(text, HasSubstr("8×96 KiB/16  2 leases  128 MiB     ?"));
  EXPECT_THAT(text, Not(HasSubstr("missed")));
  const auto json = nlohmann::json::parse(SlabsJson(seen, {}));
  EXPECT_EQ(json["views"][0]["unknown"], "pid 4712 is gone");
  EXPECT_TRUE(json["views"][0]["blocks"].is_null());
  EXPECT_TRUE(json["slabs"][0]["used_blocks"].is_null());
}

TEST(SlabsOutputTest, AbsentSlabsAreRoomToGrow) {
  Pool pool = FabricatePool();
  pool.table.slabs[4].word.state = abi::SlabState::kAbsent;
  pool.table.slabs[5].word.state = abi::SlabState::kAbsent;
  const std::string text = SlabsText(Observed(pool), {}, false);
  EXPECT_THAT(text, HasSubstr("pool      384 MiB, may grow to 512 MiB on"));
  EXPECT_THAT(text, HasSubstr("\n  absent           2  128 MiB\n"));
  EXPECT_THAT(text, HasSubstr("[###0__!#]"));
  EXPECT_THAT(text, HasSubstr("\n  4-5  absent"));
  const auto json = nlohmann::json::parse(SlabsJson(Observed(pool), {}));
  EXPECT_EQ(json["pool_bytes"], 384 << 20);
  EXPECT_EQ(json["most_pool_bytes"], 512 << 20);
}

TEST(SlabsOutputTest, ByFormatTheListingIsSortedAndAddedUpPerFormat) {
  const std::string text =
      SlabsText(FabricateObservation(), {.order = SlabOrder::kFormat}, false);
  EXPECT_EQ(text.substr(text.find("FORMAT ")),
            R"(FORMAT       SLABS     SIZE          USED
-                4  256 MiB             -
8×96 KiB/16      3  192 MiB  124/254 49 %
whole            1   64 MiB             -

SLABS  STATE        ENGINE       FORMAT          LEASE     SIZE          USED   AGE
    2  free         -            -                   -   64 MiB             -  60 s
    3  zeroing      -            -                   -   64 MiB             -  60 s
    5  free         -            -                   -   64 MiB             -  60 s
    6  quarantined  2 vllm-b     -                   7   64 MiB             -  60 s
  0-1  partial      1 vllm-a     8×96 KiB/16  2 leases  128 MiB  124/169 73 %  60 s
    4  partial      1 vllm-a     8×96 KiB/16       104   64 MiB      0/85 0 %  60 s
    7  full         9 (unknown)  whole               8   64 MiB             -  60 s
)");
}

TEST(SlabsOutputTest, EngineThatSpansGpusSaysWhatItIsSureOf) {
  Observation seen = FabricateObservation();
  abi::ViewRecord& view = seen.pool.table.engines[0].view;
  view.flags = abi::kViewOfGroup;
  view.offer = 5;
  const auto text = [&] { return SlabsText(seen, {}, false); };
  const auto spans = [&] {
    return nlohmann::json::parse(SlabsJson(seen, {}))["views"][0]["spans_gpus"];
  };
  EXPECT_THAT(text(), Not(HasSubstr("admission counts"))) << "an older one";
  EXPECT_TRUE(spans()["sure_blocks"].is_null());
  abi::ViewScoreboardSnapshot& scoreboard = *seen.view_scoreboards.at(1);
  scoreboard.sure_blocks = 0;
  scoreboard.first_blocks = 85;
  scoreboard.most_blocks = 510;
  EXPECT_THAT(text(), HasSubstr("5 slabs offered here"));
  EXPECT_THAT(text(), HasSubstr("admission counts on 0 blocks at most (85 "));
  EXPECT_EQ(spans()["sure_blocks"], 0);
  EXPECT_EQ(spans()["first_blocks"], 85);
  EXPECT_EQ(spans()["most_blocks"], 510);
}

TEST(SlabsOutputTest, JsonHasViewsBlocksAndGroups) {
  const auto json = nlohmann::json::parse(
      SlabsJson(FabricateObservation(), {.order = SlabOrder::kEngine}));
  const auto& view = json["views"][0];
  EXPECT_EQ(view["engine_name"], "vllm-a");
  EXPECT_EQ(view["format"]["planes"], 8);
  const auto& request = view["format"]["request"];
  EXPECT_EQ(request["states"], 3);
  ASSERT_EQ(request["groups"].size(), 2u);
  EXPECT_EQ(request["groups"][1]["window_tokens"], 1024);
  EXPECT_EQ(view["floor"], 2);
  EXPECT_EQ(view["blocks"]["stranded_blocks"], 45);
  EXPECT_EQ(view["blocks"]["stranded_bytes"], 45 * 8 * (96 << 10));
  EXPECT_EQ(json["order"], "engine");
  EXPECT_EQ(json["groups"][1]["name"], "1 vllm-a");
  EXPECT_EQ(json["groups"][1]["usable_blocks"], 84 + 85 + 85);
  EXPECT_EQ(json["counters"]["slabs_returned"], 0);
}

}  // namespace
}  // namespace fineserve::fsctl

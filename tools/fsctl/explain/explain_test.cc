#include "tools/fsctl/explain/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/fsctl/processes/fabricated_scoreboard.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMaps[] =
    "00001000-00002000 r--p 00000000 08:01 77 /opt/my lib/libtorch.so\n"
    "00002000-00003000 r-xp 00001000 08:01 77 /opt/my lib/libtorch.so\n"
    "00008000-00009800 rw-p 00000000 00:00 0 \n"
    "0000a000-0000b000 rw-p 00000000 00:00 0 [heap]\n"
    "garbage\n"
    "7fff0000-7fff1000 r-xp 00000000 08:01 78 /usr/lib/libevil\x1b[2J.so "
    "(deleted)\n";

TEST(ExplainOutputTest, TextIsTheGoldenOne) {
  EXPECT_EQ(ExplainText(FabricateScoreboard(), AddressMap::Parse(kMaps), 20,
                        kTestNow, false),
            R"(process   vllm (pid 4712), engine 1
link      connected
calls     large 40, small at least 1234, stacks captured 40
KV        redirected 32, now holding 2 GiB, denied 1

decisions: the last 2 of 2
#0  12 s ago  cuMemAlloc_v2  512 MiB  at 0x7f0000000000  redirected  lease 3
      its size is declared as KV
      libtorch.so+0x500
      0x9000
#1  12 s ago  cuMemAlloc_v2  512 MiB  at 0x0  denied  CUDA error 2
      KV, but too few free slabs, or none within its limit (fsctl limit)
)");
}

TEST(ExplainOutputTest, LastKeepsTheNewest) {
  const std::string text =
      ExplainText(FabricateScoreboard(), AddressMap(), 1, kTestNow, false);
  EXPECT_THAT(text, HasSubstr("the last 1 of 2"));
  EXPECT_THAT(text, HasSubstr("#1 "));
  EXPECT_THAT(text, Not(HasSubstr("#0 ")));
}

TEST(ExplainOutputTest, ZeroMeansAll) {
  EXPECT_THAT(
      ExplainText(FabricateScoreboard(), AddressMap(), 0, kTestNow, false),
      HasSubstr("#0 "));
}

TEST(ExplainOutputTest, SaysWhatCanLeaveTheGpuAndWhyTheRestStays) {
  abi::ScoreboardSnapshot scoreboard = FabricateScoreboard();
  scoreboard.resident_bytes = 48 << 20;
  scoreboard.pinned_bytes = 4 << 20;
  scoreboard.lent_bytes = 3 << 20;
  scoreboard.created_bytes = 96 << 20;
  scoreboard.small_bytes = 1 << 20;
  const auto said = [&] {
    return ExplainText(scoreboard, AddressMap(), 1, kTestNow, false);
  };
  EXPECT_THAT(said(), HasSubstr(R"(memory    44 MiB can leave the GPU
          stays: 3 MiB open in another process (CUDA IPC)
          stays: 1 MiB handed to another process or device
          stays: 96 MiB that it maps itself (cuMemCreate)
          stays: 1 MiB or less in small allocations
)"));
  scoreboard.resident_bytes = scoreboard.pinned_bytes;
  scoreboard.evicted_bytes = 44 << 20;
  scoreboard.gate_waits = 3;
  EXPECT_THAT(said(), HasSubstr("memory    0 B can leave the GPU, 44 MiB has "
                                "left, 3 calls have waited for it"));
}

TEST(ExplainOutputTest, SaysWhoReadsWhoseWeightsOrWhyNot) {
  abi::ScoreboardSnapshot scoreboard = FabricateScoreboard();
  scoreboard.resident_bytes = 48 << 20;
  EXPECT_THAT(ExplainText(scoreboard, AddressMap(), 1, kTestNow, false,
                          "there is no other replica"),
              HasSubstr("\nweights   kept: there is no other replica\n"));
  scoreboard.dropped_bytes = 40 << 20;
  scoreboard.lender_pid = 77;
  const std::string text =
      ExplainText(scoreboard, AddressMap(), 1, kTestNow, false);
  EXPECT_THAT(text, Not(HasSubstr("weights   kept")));
  EXPECT_THAT(text, HasSubstr("dropped: 40 MiB of parameters, which it reads "
                              "from pid 77"));
}

TEST(ExplainOutputTest, LinkMessageSaysWhyItPassesThrough) {
  abi::ScoreboardSnapshot scoreboard = FabricateScoreboard();
  scoreboard.link_state = abi::LinkState::kNoDaemon;
  scoreboard.link_message = "nobody listens at x";
  const std::string text =
      ExplainText(scoreboard, AddressMap(), 1, kTestNow, false);
  EXPECT_THAT(text, HasSubstr("no daemon"));
  EXPECT_THAT(text, HasSubstr("nobody listens at x"));
}

TEST(ExplainOutputTest, LostRecordsAreCounted) {
  abi::ScoreboardSnapshot scoreboard = FabricateScoreboard();
  scoreboard.overwritten = 7;
  scoreboard.unfinished = 1;
  scoreboard.malformed = 2;
  EXPECT_THAT(ExplainText(scoreboard, AddressMap(), 0, kTestNow, false),
              HasSubstr("(7 overwritten) (1 being written) (2 malformed)"));
}

TEST(ExplainOutputTest, JsonHasEveryDecision) {
  const auto json = nlohmann::json::parse(
      ExplainJson(FabricateScoreboard(), AddressMap::Parse(kMaps), kTestNow));
  EXPECT_EQ(json["link"], "connected");
  ASSERT_EQ(json["decisions"].size(), 2u);
  EXPECT_EQ(json["decisions"][0]["frames"][0], "libtorch.so+0x500");
  EXPECT_EQ(json["decisions"][0]["age_seconds"], 12);
  EXPECT_EQ(json["decisions"][1]["result"], 2);
}

}  // namespace
}  // namespace fineserve::fsctl

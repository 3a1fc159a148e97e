#include "tools/fsctl/slabs/engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/fsctl/daemons/fabricated_pool.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

TEST(EnginesOutputTest, TextIsTheGoldenOne) {
  Pool pool = FabricatePool();
  pool.table.torn_engines = 1;
  EXPECT_EQ(
      EnginesText(Observed(pool), false),
      "ID  NAME    STATE        PIDS       SLABS     SIZE   AGE  VIEW  "
      "USED\n"
      " 1  vllm-a  alive        4712,4713      3  192 MiB  60 s  -        "
      "-\n"
      " 2  vllm-b  quarantined  -              1   64 MiB  60 s  -        "
      "-\n"
      "1 more being written, not shown\n");
}

TEST(EnginesOutputTest, JsonHasPidsAndBytes) {
  const auto json = nlohmann::json::parse(EnginesJson(FabricateObservation()));
  EXPECT_EQ(json["engines"][0]["pids"], nlohmann::json({4712, 4713}));
  EXPECT_EQ(json["engines"][0]["bytes"], 192 << 20);
  EXPECT_EQ(json["engines"][1]["state"], "quarantined");
  EXPECT_EQ(json["engines"][0]["view"]["cap"], 6);
  EXPECT_TRUE(json["engines"][1]["view"].is_null());
}

TEST(EnginesOutputTest, EngineWhoseMemoryLeftTheGpuIsEvicted) {
  Observation seen = FabricateObservation();
  seen.memory[seen.pool.table.engines[0].id] = {0, 0, 44 << 20, 3};
  EXPECT_THAT(EnginesText(seen, false), HasSubstr(" evicted "));
  const auto json = nlohmann::json::parse(EnginesJson(seen));
  EXPECT_EQ(json["engines"][0]["memory"]["evicted_bytes"], 44 << 20);
  EXPECT_TRUE(json["engines"][1]["memory"].is_null());
  seen.memory.clear();
  seen.pool.table.engines[0].view.state = abi::ViewState::kSuspended;
  EXPECT_THAT(EnginesText(seen, false), HasSubstr(" asleep "));
}

TEST(EnginesOutputTest, ViewIsShownBriefly) {
  Observation seen = FabricateObservation();
  seen.pool.table.engines[0].view.mode = abi::ViewMode::kGuarded;
  EXPECT_THAT(
      EnginesText(seen, false),
      HasSubstr("3  192 MiB  60 s  8×96 KiB/16 guarded  124/254 49 %\n"));
}

}  // namespace
}  // namespace fineserve::fsctl

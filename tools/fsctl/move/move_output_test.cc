#include "tools/fsctl/move/move_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fineserve::fsctl {
namespace {

abi::MoveDone Done(abi::Place place, uint32_t moved) {
  abi::MoveDone done = {};
  done.engine_id = 3;
  done.place = place;
  done.processes = 1;
  done.moved = moved;
  done.bytes = 8 << 20;
  return done;
}

TEST(MoveOutputTest, SaysWhatLeftTheGpuAndWhatStays) {
  abi::MoveDone done = Done(abi::Place::kHost, 1);
  EXPECT_EQ(MoveText("chat", done),
            "chat: 8 MiB left the GPU; the next request brings it back\n");
  done.processes = 2;
  done.pinned_bytes = 2 << 20;
  EXPECT_EQ(MoveText("chat", done),
            "chat: 8 MiB left the GPU (2 processes); 2 MiB stays, since it was "
            "exported; the next request brings it back\n");
  EXPECT_EQ(MoveText("chat", Done(abi::Place::kGpu, 1)),
            "chat: 8 MiB is on the GPU\n");
  EXPECT_EQ(MoveText("chat", Done(abi::Place::kGpu, 0)),
            "chat was there already: 8 MiB is on the GPU\n");
}

TEST(MoveOutputTest, JsonHasPlaceAndBytes) {
  const auto json =
      nlohmann::json::parse(MoveJson("chat", Done(abi::Place::kHost, 1)));
  EXPECT_EQ(json["name"], "chat");
  EXPECT_EQ(json["place"], "host");
  EXPECT_EQ(json["bytes"], 8 << 20);
}

}  // namespace
}  // namespace fineserve::fsctl

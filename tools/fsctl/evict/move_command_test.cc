#include "tools/fsctl/evict/move_command.h"

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
  EXPECT_EQ(
      MoveText("chat", done),
      "chat: 8 MiB left the GPU (2 processes); 2 MiB stays, since another "
      "process or device has it; the next request brings it back\n");
  EXPECT_EQ(MoveText("chat", Done(abi::Place::kGpu, 1)),
            "chat: 8 MiB is on the GPU\n");
  EXPECT_EQ(MoveText("chat", Done(abi::Place::kGpu, 0)),
            "chat was there already: 8 MiB is on the GPU\n");
}

TEST(MoveOutputTest, SaysWhoseParametersAreRead) {
  EXPECT_EQ(DropText("chat", Done(abi::Place::kDropped, 1), 4711),
            "chat: dropped 8 MiB of parameters, which it reads from pid 4711 "
            "now; fsctl restore brings them back\n");
  EXPECT_EQ(nlohmann::json::parse(
                MoveJson("chat", Done(abi::Place::kDropped, 1)))["place"],
            "dropped");
}

TEST(MoveOutputTest, JsonHasPlaceAndBytes) {
  const auto json =
      nlohmann::json::parse(MoveJson("chat", Done(abi::Place::kHost, 1)));
  EXPECT_EQ(json["name"], "chat");
  EXPECT_EQ(json["place"], "host");
  EXPECT_EQ(json["bytes"], 8 << 20);
}

TEST(StoreOutputTest, SaysWhatIsNeededAndWhatSharingSaves) {
  abi::StoreAnswer store = {};
  store.held_bytes = 10 << 20;
  store.spare_bytes = 2 << 20;
  store.unshared_bytes = 16 << 20;
  store.limit_bytes = 64 << 20;
  store.copied_bytes = 12 << 20;
  store.found_bytes = 30 << 20;
  store.copies = 3;
  EXPECT_EQ(StoreText({{"GPU-a", 7, store, 0}}),
            "the store holds 10 MiB in 3 copies, and may hold 64 MiB\n"
            "  8 MiB is needed by engines that are evicted (16 MiB if equal "
            "contents were not held once)\n"
            "  2 MiB is spare: its engines are on the GPU, and need not be "
            "copied again\n"
            "since the daemon's start 12 MiB was copied, and 30 MiB was here "
            "already\n");
  EXPECT_EQ(nlohmann::json::parse(
                StoreJson({{"GPU-a", 7, store, 0}}))["needed_bytes"],
            8 << 20);
}

TEST(StoreOutputTest, SaysWhatOtherDaemonsStoresHold) {
  abi::StoreAnswer store = {};
  store.limit_bytes = 64 << 20;
  store.unshared_bytes = 8 << 20;
  store.found_bytes = 8 << 20;
  EXPECT_EQ(StoreText({{"GPU-a", 7, store, 8 << 20}}),
            "the store holds 0 B in 0 copies, and may hold 64 MiB\n"
            "  0 B is needed by engines that are evicted\n"
            "  8 MiB more is needed by them, and held in the stores of other "
            "daemons\n"
            "  0 B is spare: its engines are on the GPU, and need not be "
            "copied again\n"
            "since the daemon's start 0 B was copied, and 8 MiB was here "
            "already\n");
  EXPECT_EQ(nlohmann::json::parse(
                StoreJson({{"GPU-a", 7, store, 8 << 20}}))["others_bytes"],
            8 << 20);
}

TEST(StoreOutputTest, SaysWhichDaemonsShareIt) {
  StoreSight holder = {"GPU-a", 7, {}, 0};
  holder.store.held_bytes = 10 << 20;
  holder.store.spare_bytes = 2 << 20;
  holder.store.unshared_bytes = holder.store.copied_bytes = 8 << 20;
  holder.store.limit_bytes = 64 << 20;
  holder.store.copies = 3;
  StoreSight user = {"GPU-b", 8, {}, 8 << 20};
  user.store.limit_bytes = 64 << 20;
  user.store.unshared_bytes = user.store.found_bytes = 8 << 20;
  EXPECT_EQ(StoreText({holder, user}),
            "the stores of 2 daemons, which use each other's copies, hold 10 "
            "MiB in 3 copies\n"
            "  GPU-a (fineserved, pid 7): 10 MiB in 3 copies, may hold 64 MiB\n"
            "  GPU-b (fineserved, pid 8): 0 B in 0 copies, may hold 64 MiB; "
            "needs 8 MiB that others hold\n"
            "  8 MiB is needed by engines that are evicted (16 MiB if equal "
            "contents were not held once)\n"
            "  2 MiB is spare: its engines are on the GPU, and need not be "
            "copied again\n"
            "since the daemons' starts 8 MiB was copied, and 8 MiB was here "
            "already\n");
  const auto json = nlohmann::json::parse(StoreJson({holder, user}));
  EXPECT_EQ(json["needed_bytes"], 8 << 20);
  EXPECT_FALSE(json.contains("limit_bytes")) << "each has its own";
  EXPECT_EQ(json["daemons"][1]["gpu"], "GPU-b");
  EXPECT_EQ(json["daemons"][1]["others_bytes"], 8 << 20);
}

}  // namespace
}  // namespace fineserve::fsctl

#include "daemon/fleet/config/fleet_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fineserve::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An [[engine]] called "chat" at port 9011.
FleetEngine Chat() {
  FleetEngine e;
  e.name = "chat";
  e.model = "llama";
  e.host = "127.0.0.1";
  e.port = 9011;
  e.command = {"serve", "--port={port}", "--name", "{name}", "--on", "{gpu}"};
  return e;
}

std::string Error(const FleetEngine& engine,
                  const std::vector<NamedGroup>& gpus) {
  return std::string(PlacesOf(engine, gpus).status().message());
}

TEST(PlacesOf, EachGpuGetsAnEngineWithANameAPortAndACommandOfItsOwn) {
  FleetEngine chat = Chat();
  chat.floor_bytes = 5;
  const auto places = PlacesOf(chat, {{GpuOf("GPU-a1")}, {GpuOf("MIG-b2")}});
  ASSERT_TRUE(places.ok()) << places.status();
  ASSERT_EQ(places->size(), 2u);
  const FleetEngine &first = (*places)[0], &second = (*places)[1];
  EXPECT_EQ(first.name, "chat-0");
  EXPECT_EQ(first.port, 9011);
  EXPECT_EQ(first.gpu, "GPU-a1");
  EXPECT_TRUE(first.is_place);
  EXPECT_THAT(first.command, ElementsAre("serve", "--port=9011", "--name",
                                         "chat-0", "--on", "GPU-a1"));
  EXPECT_EQ(second.name, "chat-1");
  EXPECT_EQ(second.port, 9012);
  EXPECT_EQ(second.gpu, "GPU-b2");
  EXPECT_TRUE(second.is_mig);
  EXPECT_THAT(second.command, ElementsAre("serve", "--port=9012", "--name",
                                          "chat-1", "--on", "MIG-b2"));
  EXPECT_EQ(second.model, "llama");
  EXPECT_EQ(second.floor_bytes, 5u);
}

TEST(PlacesOf, OneGpuNeedsNoPortInTheCommand) {
  FleetEngine chat = Chat();
  chat.command = {"serve"};
  const auto places = PlacesOf(chat, {{GpuOf("GPU-a1")}});
  ASSERT_TRUE(places.ok()) << places.status();
  EXPECT_EQ((*places)[0].name, "chat-0");
  EXPECT_TRUE((*places)[0].is_place);
}

TEST(PlacesOf, EnginesThatOthersStartNeedNoPortInTheCommandEither) {
  FleetEngine chat = Chat();
  chat.command = {};
  EXPECT_TRUE(PlacesOf(chat, {{GpuOf("GPU-a1")}, {GpuOf("GPU-b2")}}).ok());
}

TEST(PlacesOf, PlaceMaySpanSeveralGpus) {
  FleetEngine chat = Chat();
  chat.command = {"serve", "--port={port}", "--on={gpu}"};
  const auto places = PlacesOf(chat, {{GpuOf("GPU-a"), GpuOf("GPU-b")},
                                      {GpuOf("GPU-d"), GpuOf("GPU-c")}});
  ASSERT_TRUE(places.ok()) << places.status();
  ASSERT_EQ(places->size(), 2u);
  const FleetEngine& second = (*places)[1];
  EXPECT_THAT(second.Gpus(), ElementsAre("GPU-d", "GPU-c"));
  EXPECT_THAT(second.ShownGpus(), ElementsAre("GPU-d", "GPU-c"));
  EXPECT_THAT(second.command,
              ElementsAre("serve", "--port=9012", "--on=GPU-d,GPU-c"));
  EXPECT_TRUE(second.IsOn("GPU-c1"));
  EXPECT_FALSE(second.IsOn("GPU-a1"));
  FleetEngine one;
  one.gpu = "GPU-c";
  EXPECT_TRUE(second.MayShareGpuWith(one));
  EXPECT_FALSE(one.MayShareGpuWith((*places)[0]));
}

TEST(PlacesOf, MistakesInGroupsAreNamedWithTheFix) {
  const NamedGroup ab = {GpuOf("GPU-a"), GpuOf("GPU-b")};
  EXPECT_THAT(Error(Chat(), {ab, {}}), HasSubstr("has an empty list"));
  EXPECT_THAT(Error(Chat(), {ab, {GpuOf("GPU-c")}}),
              HasSubstr("as many GPUs as the engine has ranks"));
  EXPECT_THAT(Error(Chat(), {ab, {GpuOf("GPU-c"), GpuOf("GPU-b")}}),
              HasSubstr("list each GPU once"));
  EXPECT_THAT(Error(Chat(), {{GpuOf("GPU-a"), GpuOf("MIG-b")}}),
              HasSubstr("MIG-b cannot be one of several GPUs"));
}

TEST(PlacesOf, LastPortMayBeTheLastThereIs) {
  FleetEngine chat = Chat();
  chat.port = 65534;
  const std::vector<NamedGroup> two = {{GpuOf("GPU-a")}, {GpuOf("GPU-b")}};
  EXPECT_EQ(PlacesOf(chat, two)->back().port, 65535);
  chat.port = 65535;
  EXPECT_THAT(Error(chat, two), HasSubstr("need ports from 65535 on"));
}

TEST(PlacesOf, MistakesAreNamedWithTheFix) {
  const std::vector<NamedGroup> one = {{GpuOf("GPU-a")}};
  const std::vector<NamedGroup> two = {{GpuOf("GPU-a")}, {GpuOf("GPU-b")}};
  EXPECT_THAT(Error(Chat(), {}),
              HasSubstr("engine \"chat\": gpus is empty; name at least one"));
  EXPECT_THAT(Error(Chat(), {{GpuOf("")}}),
              HasSubstr("empty name; give UUIDs"));
  EXPECT_THAT(
      Error(Chat(), {{GpuOf("GPU-a1")}, {GpuOf("GPU-b")}, {GpuOf("GPU-a")}}),
      HasSubstr("\"GPU-a1\" and \"GPU-a\", which may be one GPU"));
  EXPECT_THAT(Error(Chat(), {{GpuOf("GPU-a")}, {GpuOf("MIG-a")}}),
              HasSubstr("list each GPU once"));
  FleetEngine chat = Chat();
  chat.gpu = "GPU-a";
  EXPECT_THAT(Error(chat, one), HasSubstr("both gpu and gpus; leave out one"));
  chat = Chat();
  chat.target_rate = 1;
  EXPECT_THAT(Error(chat, one), HasSubstr("leave out target_rate"));
  chat = Chat();
  chat.command = {"serve", "--port", "9011"};
  EXPECT_THAT(
      Error(chat, two),
      HasSubstr("write {port} in command, like \"--port\", \"{port}\""));
}

TEST(CheckApart, PlaceNeedsANameAndAUrlOfItsOwn) {
  Fleet fleet;
  fleet.engines = *PlacesOf(Chat(), {{GpuOf("GPU-a")}, {GpuOf("GPU-b")}});
  FleetEngine other = Chat();
  other.name = "chat-1";
  other.port = 1;
  EXPECT_THAT(std::string(CheckApart(other, fleet).message()),
              HasSubstr("a second engine \"chat-1\"; an engine with gpus is "
                        "called NAME-0"));
  other.name = "other";
  other.port = 9012;
  EXPECT_THAT(std::string(CheckApart(other, fleet).message()),
              HasSubstr("engine \"other\": \"chat-1\" has port 9012, too"));
  other.host = "10.0.0.1";
  EXPECT_TRUE(CheckApart(other, fleet).ok());
}

TEST(CheckIsNoProxy, EngineIsNotWhereTheProxyListens) {
  ProxySettings proxy;
  proxy.listen_host = "0.0.0.0";
  proxy.listen_port = 8000;
  proxy.admin_host = "10.0.0.1";
  proxy.admin_port = 8001;
  FleetEngine engine = Chat();
  const auto is_ok = [&](const std::string& host, uint16_t port) {
    engine.host = host;
    engine.port = port;
    return CheckIsNoProxy(engine, proxy).ok();
  };
  for (const char* here : {"127.0.0.1", "127.1.2.3", "localhost", "::1"}) {
    EXPECT_FALSE(is_ok(here, 8000)) << here;
    EXPECT_TRUE(is_ok(here, 8001)) << here;
  }
  EXPECT_FALSE(is_ok("10.0.0.1", 8001));
  EXPECT_TRUE(is_ok("10.0.0.9", 8000)) << "another machine's";
  proxy.listen_port = 0;  // any
  EXPECT_TRUE(is_ok("localhost", 8000));
}

TEST(CheckApart, EnginesOfWhichNoneIsAPlaceMayShareAUrl) {
  Fleet fleet;
  fleet.engines = {Chat()};
  FleetEngine other = Chat();
  other.name = "other";
  EXPECT_TRUE(CheckApart(other, fleet).ok());
}

}  // namespace
}  // namespace fineserve::config

#include "tools/up/fleet_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace fineserve::fsctl {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

config::Fleet TwoEngines() {
  config::Fleet fleet;
  config::FleetEngine engine;
  engine.name = "chat";
  engine.model = "m";
  engine.host = "::1";
  engine.port = 9001;
  engine.command = {"serve", "--config", "{\"a\": 1}", "it's", ""};
  fleet.engines.push_back(engine);
  engine.name = "other";
  engine.command.clear();
  fleet.engines.push_back(engine);
  return fleet;
}

TEST(UpPreview, CommandIsAsAShellTakesItOfEnginesThatHaveOne) {
  EXPECT_EQ(PreviewText(TwoEngines()),
            "chat at http://[::1]:9001\n"
            "  serve --config '{\"a\": 1}' 'it'\\''s' ''\n");
}

TEST(UpPreview, JsonHasTheWords) {
  const std::string json = PreviewJson(TwoEngines());
  EXPECT_NE(json.find("\"url\": \"http://[::1]:9001\""), std::string::npos);
  EXPECT_NE(json.find("\"it's\""), std::string::npos);
  EXPECT_EQ(json.find("other"), std::string::npos);
}

// Returns five replicas on four GPUs that may read each other's weights.
config::Fleet Replicas() {
  config::Fleet fleet;
  fleet.overload.link_gb_s = 400;
  for (const char* gpu : {"GPU-a", "GPU-b", "GPU-a", "GPU-c", "GPU-d"}) {
    config::FleetEngine engine;
    engine.model = "m";
    engine.gpu = gpu;
    engine.may_evict = true;
    fleet.engines.push_back(std::move(engine));
  }
  return fleet;
}

std::vector<std::vector<std::string>> PeersIn(config::Fleet fleet) {
  FindPeerGpus(&fleet);
  std::vector<std::vector<std::string>> peers;
  for (const config::FleetEngine& engine : fleet.engines) {
    peers.push_back(engine.peer_gpus);
  }
  return peers;
}

TEST(PeerGpus, EngineSeesThoseOfItsReplicasOnceEach) {
  EXPECT_THAT(PeersIn(Replicas()),
              ElementsAre(ElementsAre("GPU-b", "GPU-c", "GPU-d"),
                          ElementsAre("GPU-a", "GPU-c", "GPU-d"),
                          ElementsAre("GPU-b", "GPU-c", "GPU-d"),
                          ElementsAre("GPU-a", "GPU-b", "GPU-d"),
                          ElementsAre("GPU-a", "GPU-b", "GPU-c")));
}

TEST(PeerGpus, OnlyEnginesThatMayDropForEachOtherSeeMoreThanTheirOwn) {
  config::Fleet fleet = Replicas();
  fleet.engines[1].model = "n";
  fleet.engines[2].gpu = "";
  fleet.engines[3].may_evict = false;
  fleet.engines[4].is_mig = true;
  EXPECT_THAT(PeersIn(fleet), Each(IsEmpty()));
}

TEST(PeerGpus, WithoutOverloadAnEngineSeesItsOwn) {
  config::Fleet fleet = Replicas();
  fleet.overload.may_drop = false;
  EXPECT_THAT(PeersIn(fleet), Each(IsEmpty()));
  fleet.overload = {};
  EXPECT_THAT(PeersIn(fleet), Each(IsEmpty()));
}

}  // namespace

}  // namespace fineserve::fsctl

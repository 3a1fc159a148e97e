#include "tools/up/fleet_check.h"

#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

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

}  // namespace

}  // namespace fineserve::fsctl

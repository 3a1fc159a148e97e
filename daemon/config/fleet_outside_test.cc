#include "daemon/config/fleet_outside.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace fineserve::config {
namespace {

constexpr char kEngines[] = R"(
[[engine]]
name = "a"
model = "chat"
url = "http://127.0.0.1:9001"
[[engine]]
name = "b"
model = "small"
url = "http://127.0.0.1:9002"
)";

absl::StatusOr<Fleet> ReadWith(const std::string& chats,
                               const std::string& smalls,
                               const std::string& more) {
  char path[] = "/tmp/fineserve-outside-XXXXXX";
  close(mkstemp(path));
  const auto model = [](const std::string& name, const std::string& its) {
    return absl::StrCat("[[model]]\nname = \"", name,
                        "\"\nslo_ttft_ms = 1000\nkv_token_bytes = 1\n", its);
  };
  std::ofstream(path) << model("chat", chats) << model("small", smalls) << more
                      << kEngines;
  auto fleet = ReadFleet(path);
  unlink(path);
  return fleet;
}

TEST(FleetOutsideTest, UrlSaysHowTheEndpointIsReached) {
  const struct {
    const char *url, *host, *path;
    uint16_t port;
    bool tls;
  } kCases[] = {
      {"https://api.example.com/v1", "api.example.com", "/v1", 443, true},
      {"https://api.example.com/v1/", "api.example.com", "/v1", 443, true},
      {"https://api.example.com", "api.example.com", "", 443, true},
      {"http://127.0.0.1:9000/openai/v1", "127.0.0.1", "/openai/v1", 9000,
       false},
      {"http://[::1]/v1", "::1", "/v1", 80, false},
      {"https://[::1]:8443/v1", "::1", "/v1", 8443, true},
  };
  for (const auto& c : kCases) {
    const auto fleet = ReadWith(
        "fallback = \"gpt\"\n", "",
        absl::StrCat("[[outside]]\nname = \"gpt\"\nurl = \"", c.url, "\"\n"));
    ASSERT_TRUE(fleet.ok()) << fleet.status();
    const OutsideModel* const gpt = fleet->Outside("gpt");
    ASSERT_NE(gpt, nullptr);
    EXPECT_EQ(gpt->host, c.host) << c.url;
    EXPECT_EQ(gpt->port, c.port) << c.url;
    EXPECT_EQ(gpt->path, c.path) << c.url;
    EXPECT_EQ(gpt->tls, c.tls) << c.url;
    EXPECT_EQ(gpt->model, "gpt");
  }
}

TEST(FleetOutsideTest, FallbackMayBeAModelOfTheFleet) {
  const auto fleet = ReadWith("fallback = \"small\"\n", "", "");
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->models[0].fallback, "small");
}

TEST(FleetOutsideTest, MistakesAreNamed) {
  const struct {
    const char *chats, *smalls, *more, *says;
  } kMistakes[] = {
      {"fallback = \"gtp\"\n", "", "",
       "fallback = \"gtp\" is neither a [[model]] nor an [[outside]]"},
      {"fallback = \"small\"\n", "fallback = \"chat\"\n", "",
       "model \"chat\": fallback = \"small\" leads in a circle"},
      {"fallback = \"chat\"\n", "", "", "leads in a circle"},
      {"", "", "[[outside]]\nname = \"chat\"\nurl = \"https://a\"\n",
       "[[outside]] \"chat\": another model has this name"},
      {"", "", "[[outside]]\nname = \"gpt\"\nurl = \"api.example.com\"\n",
       "must be a URL, like \"https://api.example.com/v1\""},
      {"", "", "[[outside]]\nurl = \"https://a\"\n",
       "an [[outside]] needs name and url"},
  };
  for (const auto& mistake : kMistakes) {
    const absl::Status s =
        ReadWith(mistake.chats, mistake.smalls, mistake.more).status();
    EXPECT_NE(std::string(s.message()).find(mistake.says), std::string::npos)
        << s;
  }
}

}  // namespace
}  // namespace fineserve::config

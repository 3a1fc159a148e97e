// Tests of the planner's part of a fleet file: its section, the expected demand
// on models, and engines that list several GPUs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/scheduling/global/model/policy_names.h"

namespace fineserve::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kProfile[] = R"(weight_bytes = 16e9
kv_token_bytes = 4096
[step]
base_us = 8000
per_token_us = 20
per_sequence_us = 60
[[point]]
batch = 1
prompt_tokens = 256
ttft_s = 0.02
step_s = 0.008
)";
constexpr char kPlanner[] = "[planner]\n";
constexpr char kEngineOnTwoGpus[] = R"([[engine]]
name = "chat"
model = "llama"
url = "http://127.0.0.1:9011"
gpus = ["GPU-a1", "GPU-b2"]
command = ["serve", "--port", "{port}"]
)";

class FleetPlannerTest : public ::testing::Test {
 protected:
  FleetPlannerTest() { WriteProfile(kProfile); }
  ~FleetPlannerTest() override {
    unlink(path_.c_str());
    unlink(profile_path_.c_str());
  }

  void WriteProfile(const std::string& text) const {
    std::ofstream(profile_path_) << text;
  }
  // "llama", with its profile from the file unless `more` says otherwise.
  std::string Model(const std::string& more = "") const {
    return absl::StrCat("[[model]]\nname = \"llama\"\nslo_ttft_ms = 800\n",
                        more.find("profile =") == std::string::npos
                            ? "profile = \"" + profile_path_ + "\"\n"
                            : "",
                        more);
  }
  absl::StatusOr<Fleet> Read(const std::string& text) const {
    std::ofstream(path_) << text;
    return ReadFleet(path_);
  }
  std::string Error(const std::string& text) const {
    return std::string(Read(text).status().message());
  }

  const std::string stem_ =
      ::testing::TempDir() + "fleet-planner-" + std::to_string(getpid());
  const std::string path_ = stem_ + ".toml";
  const std::string profile_path_ = stem_ + ".profile.toml";
};

TEST_F(FleetPlannerTest, EveryKeyIsRead) {
  const auto fleet = Read(absl::StrCat(
      "[planner]\npolicy = \"prism\"\nperiod = 2\nwindow = 30.5\n"
      "least_gain = 0.1\ncool_down = 7\nstart = 60\ndrain = 50\n"
      "host_memory = \"1GiB\"\n",
      Model("replicas = 0\nexpected = { rate = 2.5, prompt_tokens = 242, "
            "output_tokens = 327 }\n"),
      kEngineOnTwoGpus));
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->planner,
            (PlannerSettings{true, "prism", 2, 30.5, 0.1, 7, 60, 50, 1 << 30}));
  const FleetModel& model = fleet->models[0];
  EXPECT_EQ(model.replicas, 0u);
  EXPECT_EQ(model.expected_rate, 2.5);
  EXPECT_EQ(model.expected_prompt_tokens, 242);
  EXPECT_EQ(model.expected_output_tokens, 327);
  ASSERT_TRUE(model.measured);
  EXPECT_EQ(model.measured->weight_bytes, 16e9);
  EXPECT_EQ(model.measured->points.size(), 1u);
}

TEST_F(FleetPlannerTest, ItsPresenceAloneSwitchesItOn) {
  const auto fleet = Read(kPlanner + Model() + kEngineOnTwoGpus);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->planner, (PlannerSettings{.on = true}));
  EXPECT_EQ(fleet->models[0].replicas, 1u);
  ASSERT_EQ(fleet->engines.size(), 2u);
  EXPECT_EQ(fleet->engines[1].name, "chat-1");
  EXPECT_EQ(fleet->engines[1].port, 9012);
  EXPECT_EQ(fleet->engines[1].command.back(), "9012");
  EXPECT_TRUE(fleet->engines[1].is_place);
}

TEST_F(FleetPlannerTest, FixedEngineKeepsBracesInItsCommand) {
  const auto fleet = Read(absl::StrReplaceAll(
      absl::StrCat(Model(), kEngineOnTwoGpus),
      {{"gpus = [\"GPU-a1\", \"GPU-b2\"]", "gpu = \"GPU-a1\""}}));
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_FALSE(fleet->planner.on);
  EXPECT_FALSE(fleet->engines[0].is_place);
  EXPECT_EQ(fleet->engines[0].command.back(), "{port}");
}

TEST_F(FleetPlannerTest, KvThatTheFleetFileTellsIsWhatThePlannerReads) {
  const auto fleet =
      Read(kPlanner + Model("kv_token_bytes = 77\n") + kEngineOnTwoGpus);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->models[0].measured->kv_token_bytes, 77u);
}

TEST_F(FleetPlannerTest, EveryPlacementPolicyMayBeNamed) {
  for (const char* policy : plan::kPolicyNames) {
    const auto fleet = Read(absl::StrCat("[planner]\npolicy = \"", policy,
                                         "\"\n", Model(), kEngineOnTwoGpus));
    ASSERT_TRUE(fleet.ok()) << fleet.status();
    EXPECT_EQ(fleet->planner.policy, policy);
  }
}

TEST_F(FleetPlannerTest, ModelOfAPlaceNeedsAMeasuredProfileWithItsSizes) {
  const std::string fleet = kPlanner + Model() + kEngineOnTwoGpus;
  for (const auto& [line, lacking] :
       {std::pair("weight_bytes = 16e9\n", "weight_bytes in its profile"),
        std::pair("kv_token_bytes = 4096\n", "kv_token_bytes in its profile"),
        std::pair("[[point]]\nbatch = 1\nprompt_tokens = 256\nttft_s = 0.02\n"
                  "step_s = 0.008\n",
                  "at least one [[point]] in its profile")}) {
    WriteProfile(absl::StrReplaceAll(kProfile, {{line, ""}}));
    EXPECT_THAT(Error(fleet),
                HasSubstr(absl::StrCat(
                    path_, ": model \"llama\": the planner needs ", lacking)));
    EXPECT_THAT(Error(fleet), HasSubstr("fsctl profile URL --weights 15GiB"));
  }
  WriteProfile(absl::StrCat("tp = 2\n", kProfile));
  EXPECT_THAT(Error(fleet), HasSubstr("needs tp = 1 in its profile file"));
  const std::string pairs = absl::StrReplaceAll(
      fleet, {{"[\"GPU-a1\", \"GPU-b2\"]",
               "[[\"GPU-a1\", \"GPU-b2\"], [\"GPU-c3\", \"GPU-d4\"]]"}});
  const auto spanning = Read(pairs);
  ASSERT_TRUE(spanning.ok()) << spanning.status();
  EXPECT_THAT(spanning->engines[1].Gpus(),
              ::testing::ElementsAre("GPU-c3", "GPU-d4"));
  WriteProfile(kProfile);
  EXPECT_THAT(Error(pairs), HasSubstr("needs tp = 2 in its profile file"));
  EXPECT_THAT(
      Error(absl::StrCat(kPlanner,
                         Model("profile = { base_us = 1, per_token_us = 2 }\n"),
                         kEngineOnTwoGpus)),
      HasSubstr("the planner needs a profile file"));
}

TEST_F(FleetPlannerTest, ModelOfFixedEnginesNeedsNoProfileThere) {
  const auto fleet = Read(absl::StrCat(
      kPlanner, Model(), kEngineOnTwoGpus,
      "[[model]]\nname = \"fixed\"\nslo_ttft_ms = 1\n[[engine]]\n"
      "name = \"f\"\nmodel = \"fixed\"\nurl = \"http://127.0.0.1:1\"\n"));
  EXPECT_TRUE(fleet.ok()) << fleet.status();
}

TEST_F(FleetPlannerTest, MistakesAreNamedWithTheFix) {
  const std::string fleet = Model() + kEngineOnTwoGpus;
  EXPECT_THAT(Error(fleet), HasSubstr(path_ + ": engine \"chat-0\" comes"));
  EXPECT_THAT(Error(fleet), HasSubstr("add [planner], or give gpu instead"));
  const struct {
    std::string text;
    const char* error;
  } kCases[] = {
      {"[planner]\npolicy = \"best\"\n", ":2: policy: must be one of fine"},
      {"[planner]\nperiod = 0.5\n", ":2: period: must be a number from 1 to"},
      {"[planner]\nleast_gain = 11\n", "must be a number from 0 to 10"},
      {"[planner]\nperiod = 61\n", ":1: [planner]: window is 60 s, less than"},
      {"[planner]\nstart = \"1\"\n", ":2: start: must be a number from 1"},
      {"[planner]\nspeed = 1\n", ":2: unknown key \"speed\""},
      {"planner = 1\n", ":1: planner: must be a section"},
      {"[[model]]\nreplicas = 65\n",
       ":2: replicas: must be a number from 0 to"},
      {"[[model]]\nexpected = 1\n", ":2: expected: must be like { rate = 2.5"},
      {"[[model]]\nexpected = { rate = 1 }\n", "must be like { rate = 2.5"},
      {"[[engine]]\ngpus = \"GPU-1\"\n", ":2: gpus: must be a list of UUIDs"},
      {kPlanner + fleet + "gpu = \"GPU-a1\"\n", "both gpu and gpus"},
      {kPlanner + fleet + "gpu_by = \"index\"\n" + "target_rate = 1\n",
       ":6: engine \"chat\": has gpus, and the"},
      {kPlanner + fleet + kEngineOnTwoGpus, "a second engine \"chat-0\""},
      {kPlanner + fleet +
           "[[engine]]\nname = \"f\"\nmodel = \"llama\"\n"
           "url = \"http://127.0.0.1:1\"\n",
       ": engine \"f\" of model \"llama\" has no gpus"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(Error(c.text), HasSubstr(c.error));
    EXPECT_THAT(Error(c.text), HasSubstr(path_ + ":"));
    EXPECT_THAT(Error(c.text), Not(HasSubstr("\n")));
  }
}

TEST_F(FleetPlannerTest, IndexNamesNoMigInstanceAmongSeveralGpus) {
  EXPECT_THAT(Error(absl::StrReplaceAll(
                  absl::StrCat(kPlanner, Model(), kEngineOnTwoGpus,
                               "gpu_by = \"index\"\n"),
                  {{"GPU-b2", "MIG-b2"}})),
              HasSubstr("engine \"chat-1\": gpu_by = \"index\" needs a gpu"));
}

absl::StatusOr<Fleet> ReadCluster(
    const std::string& cluster, const std::string& engine_gpu = "\"GPU-b0\"") {
  char path[] = "/tmp/fineserve-cluster-XXXXXX";
  const int fd = mkstemp(path);
  EXPECT_GE(fd, 0);
  close(fd);
  std::ofstream(path) << cluster
                      << "\n[[model]]\nname = \"m\"\nslo_ttft_ms = 800\n"
                         "[[engine]]\nname = \"e\"\nmodel = \"m\"\n"
                         "url = \"http://{host}:9001\"\ngpu = "
                      << engine_gpu
                      << "\ncommand = [\"serve\", \"--host\", \"{host}\"]\n";
  absl::StatusOr<Fleet> fleet = ReadFleet(path);
  unlink(path);
  return fleet;
}

constexpr char kMachines[] = R"(
machines = [
  { name = "a", host = "10.0.0.1", gpus = ["GPU-a0", "GPU-a1"] },
  { name = "b", host = "10.0.0.2", gpus = ["GPU-b0"] },
]
)";

TEST(FleetClusterTest, OneLineMakesASecondMachineAndItsEnginesHaveItsHost) {
  const auto fleet = ReadCluster("[cluster]\netcd = [\"127.0.0.1:2379\"]" +
                                 std::string(kMachines));
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_TRUE(fleet->cluster.IsOn());
  EXPECT_EQ(fleet->engines[0].host, "10.0.0.2");
  EXPECT_EQ(fleet->engines[0].command[2], "10.0.0.2");
  EXPECT_EQ(fleet->cluster.MachineOf("GPU-b0c1")->name, "b");
  EXPECT_EQ(fleet->cluster.MachineOf(""), nullptr);
  EXPECT_EQ(fleet->cluster.PortOf("GPU-a1"), 7481);
  EXPECT_EQ(fleet->cluster.PortOf("GPU-c"), 0);
}

TEST(FleetClusterTest, MistakeIsNamedInOneLineWithTheFix) {
  struct Case {
    std::string cluster, gpu, says;
  };
  const std::string etcd = "[cluster]\netcd = [\"127.0.0.1:2379\"]\n";
  for (const Case& c : {
           Case{"[cluster]\n" + std::string(kMachines), "GPU-b0",
                "several machines need etcd"},
           Case{etcd + kMachines, "GPU-c0", "has its GPU GPU-c0"},
           Case{etcd + kMachines, "GPU-a0\", \"GPU-c0", "has its GPU GPU-c0"},
           Case{etcd + kMachines, "GPU-a0\", \"GPU-b0", "GPUs of one"},
           Case{"", "GPU-b0", "no machine of [cluster] has GPU-b0"},
           Case{etcd + "ttl = 4\n" + kMachines, "GPU-b0", "from 5 to"},
           Case{"[cluster]\netcd = [\"nowhere\"]\n" + std::string(kMachines),
                "GPU-b0", "addresses"},
           Case{etcd + "machines = [{ name = \"a\", host = \"h\", gpus = "
                       "[\"GPU-b\"] }, { name = \"a\", host = \"i\", gpus = "
                       "[\"GPU-c\"] }]",
                "GPU-b0", "two machines"},
           Case{etcd + "machines = [{ name = \"a\", host = \"h\", gpus = "
                       "[\"GPU-b\"] }, { name = \"c\", host = \"i\", gpus = "
                       "[\"GPU-b0\"] }]",
                "GPU-b0", "another machine"},
           Case{etcd + "machines = [{ name = \"a/b\", host = \"h\", gpus = "
                       "[\"GPU-b\"] }]",
                "GPU-b0", "a machine needs name"},
       }) {
    const auto fleet =
        ReadCluster(c.cluster, absl::StrCat("[\"", c.gpu, "\"]"));
    ASSERT_FALSE(fleet.ok()) << c.says;
    EXPECT_THAT(std::string(fleet.status().message()), HasSubstr(c.says));
  }
}

TEST(FleetClusterTest, HostMemoryOfAMachineGoesBeforeThatOfAll) {
  auto fleet = ReadCluster(
      "[cluster]\netcd = [\"127.0.0.1:2379\"]\nmachines = [\n"
      "{ name = \"a\", host = \"10.0.0.1\", gpus = [\"GPU-a\"] },\n"
      "{ name = \"b\", host = \"10.0.0.2\", gpus = [\"GPU-b\"], "
      "host_memory = \"512GiB\" }]");
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->HostBytesOf("GPU-a0"), 0u) << "the file does not say";
  fleet->planner.host_bytes = 7;
  EXPECT_EQ(fleet->HostBytesOf("GPU-a0"), 7u);
  EXPECT_EQ(fleet->HostBytesOf("GPU-b0"), uint64_t{512} << 30);
  EXPECT_EQ(fleet->HostBytesOf("GPU-c0"), 7u);
}

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

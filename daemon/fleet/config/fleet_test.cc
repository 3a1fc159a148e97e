#include "daemon/fleet/config/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace fineserve::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kModel[] = R"([[model]]
name = "small"
slo_ttft_ms = 500
kv_token_bytes = 2048
profile = { base_us = 8000, per_token_us = 110.5, per_sequence_us = 60 }
)";
constexpr char kEngine[] = R"([[engine]]
name = "small-a"
model = "small"
url = "http://127.0.0.1:9001"
)";

class FleetTest : public ::testing::Test {
 protected:
  void TearDown() override {
    unlink(path_.c_str());
    unlink(profile_path_.c_str());
  }

  absl::StatusOr<Fleet> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadFleet(path_);
  }
  std::string Error(const std::string& text) {
    return std::string(Read(text).status().message());
  }

  // A model whose profile is the file that holds `text`.
  std::string ModelWithProfile(const std::string& text) {
    std::ofstream(profile_path_) << text;
    return "[[model]]\nname = \"small\"\nslo_ttft_ms = 500\nprofile = \"" +
           profile_path_.substr(profile_path_.rfind('/') + 1) + "\"\n";
  }

  const std::string stem_ =
      ::testing::TempDir() + "fleet-" + std::to_string(getpid());
  const std::string path_ = stem_ + ".toml";
  const std::string profile_path_ = stem_ + ".profile.toml";
};

// Every key, each with a value other than its usual one.
constexpr char kEveryKey[] = R"(
[proxy]
listen = "0.0.0.0:80"
admin = "localhost:81"
without_daemon = "fail_closed"
replicas = "least_load"
other_paths = "forward"
keys = "/etc/keys"
service_fields = "all"
origins = ["http://localhost:5173", "*"]
admin_names = ["gpu1.example.org"]
drain = 5
engine_timeout = 7
[overload]
link_gb_s = 400
rereads = 2
[scheduler]
policy = "fcfs"
[[model]]
name = "large"
aliases = ["gpt-4o", "latest"]
slo_ttft_ms = 800
slo_tpot_ms = 60
chunk_tokens = 512
max_batch = 8
block_tokens = 32
kv_token_bytes = 131072
prompt_tokens = "exact"
profile = { base_us = 1, per_token_us = 2, per_sequence_us = 3 }
context = "524MiB"
process = "6GiB"
[[engine]]
name = "large-a"
model = "large"
url = "http://localhost:9002/"
gpu = "GPU-1"
gpu_by = "index"
command = ["vllm", "serve"]
view = false
target_rate = 2.5
floor = "1GiB"
cap = "2GiB"
)";

std::string ModelB(const std::string& aliases) {
  return "[[model]]\nname = \"b\"\nslo_ttft_ms = 1\naliases = [\"" + aliases +
         "\"]\n";
}

void ExpectEveryKeyOf(const FleetModel& large) {
  EXPECT_THAT(large.aliases, ElementsAre("gpt-4o", "latest"));
  EXPECT_EQ(large.slo_ttft_ms, 800u);
  EXPECT_EQ(large.slo_tpot_ms, 60u);
  EXPECT_EQ(large.chunk_tokens, 512u);
  EXPECT_EQ(large.max_batch, 8u);
  EXPECT_EQ(large.block_tokens, 32u);
  EXPECT_EQ(large.kv_token_bytes, 131072u);
  EXPECT_TRUE(large.counts_prompts);
  EXPECT_EQ(large.profile, (StepProfile{1, 2, 3}));
  EXPECT_EQ(large.context_bytes, 524u << 20);
  EXPECT_EQ(large.process_bytes, 6ull << 30);
}

void ExpectEveryKeyOf(const FleetEngine& engine) {
  EXPECT_EQ(engine.host, "localhost");
  EXPECT_EQ(engine.port, 9002);
  EXPECT_EQ(engine.gpu, "GPU-1");
  EXPECT_TRUE(engine.gpu_by_index);
  EXPECT_THAT(engine.command, ElementsAre("vllm", "serve"));
  EXPECT_FALSE(engine.view);
  EXPECT_EQ(engine.target_rate, 2.5);
  EXPECT_EQ(engine.floor_bytes, 1ull << 30);
  EXPECT_EQ(engine.cap_bytes, 2ull << 30);
}

TEST_F(FleetTest, EveryKeyIsRead) {
  const auto fleet = Read(std::string(kEveryKey) + kModel + kEngine);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->proxy.listen_host, "0.0.0.0");
  EXPECT_EQ(fleet->proxy.listen_port, 80);
  EXPECT_EQ(fleet->proxy.admin_host, "localhost");
  EXPECT_EQ(fleet->proxy.admin_port, 81);
  EXPECT_FALSE(fleet->proxy.fail_open);
  EXPECT_TRUE(fleet->proxy.least_load);
  EXPECT_TRUE(fleet->proxy.other_paths.all);
  EXPECT_EQ(fleet->proxy.keys_path, "/etc/keys");
  EXPECT_TRUE(fleet->proxy.all_may_set_service);
  EXPECT_THAT(fleet->proxy.origins,
              testing::ElementsAre("http://localhost:5173", "*"));
  EXPECT_THAT(fleet->proxy.admin_names,
              testing::ElementsAre("gpu1.example.org"));
  EXPECT_EQ(fleet->proxy.drain_s, 5u);
  EXPECT_EQ(fleet->proxy.engine_timeout_s, 7u);
  EXPECT_EQ(fleet->policy, "fcfs");
  EXPECT_TRUE(fleet->overload.IsOn());
  EXPECT_EQ(fleet->overload.link_gb_s, 400);
  EXPECT_EQ(fleet->overload.rereads, 2u);
  OverloadSettings never = fleet->overload;
  never.may_drop = false;
  EXPECT_FALSE(never.IsOn());
  EXPECT_FALSE(OverloadSettings().IsOn()) << "without a link";
  ExpectEveryKeyOf(fleet->models[0]);
  EXPECT_EQ(fleet->models[1].profile->per_token_us, 110.5);
  EXPECT_FALSE(fleet->models[1].counts_prompts);
  ExpectEveryKeyOf(fleet->engines[0]);
  EXPECT_EQ(fleet->engines[1].model, "small");
  EXPECT_TRUE(fleet->engines[1].view);
  EXPECT_EQ(fleet->ModelIndex("small"), 1u);
  EXPECT_EQ(fleet->ModelIndex("absent"), 2u);
}

TEST_F(FleetTest, ProxyListensLocallyAndFailsOpenByDefault) {
  const auto fleet = Read(std::string(kModel) + kEngine);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->proxy.listen_host, "127.0.0.1");
  EXPECT_TRUE(fleet->proxy.fail_open);
  EXPECT_FALSE(fleet->proxy.least_load);
  EXPECT_EQ(fleet->proxy.other_paths, OtherPaths());
  EXPECT_FALSE(fleet->proxy.all_may_set_service);
  EXPECT_EQ(fleet->policy, "fineserve");
}

TEST_F(FleetTest, PartOfAGpuHasTheEnginesThatNameIt) {
  const auto fleet = Read(std::string(kModel) + kEngine + R"([[engine]]
name = "small-b"
model = "small"
url = "http://127.0.0.1:9002"
gpu = "GPU-1"
)");
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  const Fleet part = fleet->OfGpu("GPU-1");
  ASSERT_EQ(part.engines.size(), 1u);
  EXPECT_EQ(part.engines[0].name, "small-b");
  EXPECT_EQ(part.models.size(), 1u);
  EXPECT_EQ(fleet->OfGpu("").engines[0].name, "small-a");
  EXPECT_TRUE(fleet->OfGpu("GPU-2").engines.empty());
  EXPECT_EQ(fleet->Engine("small-b")->port, 9002);
  EXPECT_EQ(fleet->Engine("small-c"), nullptr);
}

TEST_F(FleetTest, MigInstanceHasOneNameForFineservedAndAnotherForCuda) {
  const auto fleet =
      Read(std::string(kModel) + kEngine + "gpu = \"MIG-1a2b\"\n");
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->engines[0].gpu, "GPU-1a2b");
  EXPECT_EQ(fleet->engines[0].CudaGpu(), "MIG-1a2b");
  EXPECT_FALSE(fleet->engines[0].gpu_by_index);
}

TEST_F(FleetTest, ItsOwnGpuIsShownUnlessItsEnvironmentNamesGpus) {
  const std::string gpu = "gpu = \"GPU-1\"\n";
  auto fleet = Read(std::string(kModel) + kEngine + gpu);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_THAT(fleet->engines[0].ShownGpus(), ElementsAre("GPU-1"));
  fleet = Read(std::string(kModel) + kEngine + gpu +
               "env = { CUDA_VISIBLE_DEVICES = \"GPU-1,GPU-2\" }\n");
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_THAT(fleet->engines[0].ShownGpus(), IsEmpty());
}

TEST_F(FleetTest, EngineOnSeveralGpusIsShownAllOfThem) {
  const std::string two = "gpu = [\"GPU-1\", \"GPU-2\"]\n";
  const auto fleet = Read(std::string(kModel) + kEngine + two);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->engines[0].gpu, "GPU-1");
  EXPECT_THAT(fleet->engines[0].ShownGpus(), ElementsAre("GPU-1", "GPU-2"));
  const auto twice = Read(std::string(kModel) + kEngine + two +
                          "env = { CUDA_VISIBLE_DEVICES = \"0,1\" }\n");
  EXPECT_THAT(std::string(twice.status().message()),
              HasSubstr("a list of GPUs contradicts CUDA_VISIBLE_DEVICES"));
}

TEST_F(FleetTest, OtherPathsMayBeListed) {
  const auto fleet =
      Read("[proxy]\nother_paths = [\"/v1/own\", \"/v1/tools/*\"]\n" +
           std::string(kModel) + kEngine);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_FALSE(fleet->proxy.other_paths.all);
  EXPECT_THAT(fleet->proxy.other_paths.listed,
              ::testing::ElementsAre("/v1/own", "/v1/tools/*"));
}

TEST_F(FleetTest, Ipv6AddressIsInBrackets) {
  const auto fleet =
      Read("[proxy]\nlisten = \"[::1]:80\"\n" + std::string(kModel) + kEngine);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->proxy.listen_host, "::1");
  EXPECT_EQ(fleet->proxy.listen_port, 80);
}

TEST_F(FleetTest, MistakesAreNamedWithTheirLineAndTheFix) {
  const std::string model = kModel;
  const std::string engine = kEngine;
  const struct {
    const char* name;
    std::string text;
    std::string error;
  } kCases[] = {
      {"unknown key", "[proxy]\nport = 1\n", ":2: unknown key \"port\""},
      {"bad address", "[proxy]\nlisten = \"8000\"\n",
       ":2: listen: bad address \"8000\"; write it like 127.0.0.1:8000"},
      {"port too large", "[proxy]\nlisten = \"a:65536\"\n", ":2: listen"},
      {"policy", "[scheduler]\npolicy = \"best\"\n",
       "one of fineserve, moore-hodgson, fcfs"},
      {"no link", "[overload]\nlink_gb_s = 0\n",
       ":2: link_gb_s: must be a number from 1 to 100000"},
      {"prompt tokens", "[[model]]\nprompt_tokens = \"guess\"\n",
       ":2: prompt_tokens: must be one of exact, estimate"},
      {"context that is no size", "[[model]]\ncontext = 5e8\n",
       ":2: context: must be "},
      {"process that is no size", "[[model]]\nprocess = \"some\"\n",
       ":2: process: "},
      {"host memory that is no size", "[planner]\nhost_memory = \"lots\"\n",
       ":2: host_memory: "},
      {"no SLO", "[[model]]\nname = \"m\"\n", "needs slo_ttft_ms"},
      {"no name", "[[model]]\nslo_ttft_ms = 1\n", ":1: a [[model]] needs a"},
      {"profile without its slope",
       "[[model]]\nname = \"m\"\nslo_ttft_ms = 1\nprofile = { base_us = 1 }\n",
       "needs per_token_us in its profile"},
      {"whole slabs of unknown tokens",
       "[[model]]\nname = \"small\"\nslo_ttft_ms = 1\n" + engine +
           "view = false\n",
       "model \"small\" needs kv_token_bytes"},
      {"evicted never, after a time",
       "[[model]]\nname = \"small\"\nslo_ttft_ms = 1\n" + engine +
           "evict_after = 60\n",
       "evict_after needs evict = \"auto\""},
      {"stopped always",
       "[[model]]\nname = \"small\"\nslo_ttft_ms = 1\n" + engine +
           "stop_after = 60\n",
       "stop_after needs start = \"on_request\""},
      {"started by nothing",
       "[[model]]\nname = \"small\"\nslo_ttft_ms = 1\n" + engine +
           "start = \"on_request\"\n",
       "needs a command"},
      {"scaled and started by a command",
       "[[model]]\nname = \"small\"\nslo_ttft_ms = 1\n" + engine +
           "start = \"scaled\"\ncommand = [\"serve\"]\n",
       "start = \"scaled\" contradicts its command"},
      {"scaled and planned",
       "[planner]\n[[model]]\nname = \"small\"\nslo_ttft_ms = 1\n" + engine +
           "start = \"scaled\"\n",
       "start = \"scaled\" contradicts [planner]"},
      {"evict", "[[engine]]\nevict = \"always\"\n",
       ":2: evict: must be one of auto, never"},
      {"negative profile", "[[model]]\nprofile = { per_token_us = -1 }\n",
       "per_token_us: must be a number, not negative"},
      {"infinite profile", "[[model]]\nprofile = { per_token_us = inf }\n",
       "per_token_us: must be a number, not negative"},
      {"not https", "[[engine]]\nurl = \"https://a:1\"\n",
       ":2: url: must be a URL with its port"},
      {"no port", "[[engine]]\nurl = \"http://a\"\n", "must be a URL"},
      {"no path", "[proxy]\nother_paths = [\"own\"]\n",
       ":2: other_paths: \"own\" is no path"},
      {"origin with a path", "[proxy]\norigins = [\"http://a/\"]\n",
       ":2: origins: \"http://a/\" is no origin"},
      {"origin without a scheme", "[proxy]\norigins = [\"localhost:5173\"]\n",
       "is no origin"},
      {"open with keys",
       "[proxy]\nopen = true\nkeys = \"k\"\n" + model + engine,
       "open = true contradicts keys"},
      {"no url", "[[engine]]\nname = \"a\"\n", ":1: engine \"a\" needs url"},
      {"no model", "[[engine]]\nurl = \"http://a:1\"\n",
       ":1: an [[engine]] needs model"},
      {"another stock engine", "[[engine]]\nengine = \"llama.cpp\"\n",
       ":2: engine: must be one of vllm, sglang"},
      {"arguments of nothing", model + engine + "arguments = [\"-v\"]\n",
       ":6: engine \"small-a\": checkpoint, program and arguments"},
      {"stock engine without a checkpoint",
       model + engine + "engine = \"vllm\"\n",
       "engine \"small-a\": needs checkpoint"},
      {"stock engine with a command",
       model + engine + "engine = \"vllm\"\ncommand = [\"serve\"]\n",
       "has both engine = \"vllm\" and command"},
      {"model twice", model + model, ":6: a second model \"small\""},
      {"alias that is a model", model + ModelB("small"),
       ":6: the alias \"small\" is in use"},
      {"alias twice", model + ModelB("c\", \"c"), "the alias \"c\" is in use"},
      {"alias without a name", ModelB(""),
       "has an alias or an adapter without a name"},
      {"cap below floor",
       "[[engine]]\nname = \"a\"\nurl = \"http://a:1\"\nfloor = \"2GiB\"\n"
       "cap = \"1GiB\"\n",
       ":1: cap 1 GiB is less than floor 2 GiB"},
      {"index of nothing", engine + "gpu_by = \"index\"\n",
       "gpu_by = \"index\" needs a gpu"},
      {"index of a MIG instance",
       engine + "gpu = \"MIG-1\"\ngpu_by = \"index\"\n", "no MIG instance"},
      {"index beside GPUs in its environment",
       engine + "gpu = \"GPU-1\"\ngpu_by = \"index\"\n"
                "env = { CUDA_VISIBLE_DEVICES = \"0,1\" }\n",
       "contradicts CUDA_VISIBLE_DEVICES"},
      {"negative rate", "[[engine]]\ntarget_rate = -1\n", "not negative"},
      {"engine twice", model + engine + engine, "a second engine"},
      {"unknown model", engine, "no [[model]] \"small\""},
      {"engine that is the proxy",
       model + "[[engine]]\nmodel = \"small\"\n"
               "url = \"http://127.0.0.1:8000\"\n",
       ":6: engine \"small\": fineserve-proxy itself listens on port 8000"},
      {"nobody serves it", model, "no [[engine]] serves it"},
      {"nothing", "", "no [[model]]"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_THAT(Error(c.text), HasSubstr(c.error));
    EXPECT_THAT(Error(c.text), HasSubstr(path_));
  }
}

TEST_F(FleetTest, EngineNameThatFitsNowhereIsRefusedWithItsLine) {
  for (const std::string name : {"a b", "a/b", "../a", ".a", "-a",
                                 "a\\u001b[2J", "a\\n", "a\\\"", "caf\xc3\xa9",
                                 "0123456789012345678901234567890123456789"
                                 "01234567890123456789012x"}) {
    EXPECT_THAT(
        Error("\n[[engine]]\nname = \"" + name + "\"\nurl = \"http://a:1\"\n"),
        HasSubstr(":2: engine \""))
        << name;
  }
  EXPECT_THAT(Error("[[engine]]\nname = \"a b\"\nurl = \"http://a:1\"\n"),
              HasSubstr("not a name for an engine; use 1 to 63"));
  EXPECT_THAT(Error("[[engine]]\nname = \"a_b.c-1:x\"\n"
                    "url = \"http://a:1\"\n"),
              HasSubstr("no [[model]]"));
}

TEST_F(FleetTest, ModelWhoseEnginesHaveViewsNeedsItsNameAndSloOnly) {
  const auto fleet = Read("[[model]]\nname = \"small\"\nslo_ttft_ms = 800\n" +
                          std::string(kEngine));
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->models[0].kv_token_bytes, 0u);
  EXPECT_FALSE(fleet->models[0].profile);
}

constexpr char kStep[] =
    "[step]\nbase_us = 8000\nper_token_us = 20\nper_sequence_us = 60\n";

// Two stock models, with as few keys as possible.
constexpr char kStock[] = R"([[engine]]
engine = "vllm"
model = "chat"
checkpoint = "Qwen/Qwen3-8B"
[[engine]]
engine = "sglang"
model = "org/code"
checkpoint = "/models/code"
program = "/opt/sglang/bin/python3"
arguments = ["--context-length", "4096"]
[[model]]
name = "chat"
slo_ttft_ms = 2000
max_batch = 64
[[model]]
name = "org/code"
slo_ttft_ms = 1000
)";

TEST_F(FleetTest, StockEngineNeedsItsModelAndCheckpointOnly) {
  const auto fleet = Read(kStock);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  const FleetEngine &chat = fleet->engines[0], &code = fleet->engines[1];
  EXPECT_EQ(chat.name, "chat");
  EXPECT_EQ(code.name, "org-code");
  EXPECT_EQ(chat.host, "127.0.0.1");
  EXPECT_NE(chat.port, code.port);
  EXPECT_THAT(
      chat.command,
      ElementsAre("vllm", "serve", "Qwen/Qwen3-8B", "--host", "127.0.0.1",
                  "--port", std::to_string(chat.port), "--served-model-name",
                  "chat", "--max-num-batched-tokens", "2048", "--max-num-seqs",
                  "64"));
  EXPECT_THAT(
      code.command,
      ElementsAre("/opt/sglang/bin/python3", "-m", "sglang.launch_server",
                  "--model-path", "/models/code", "--host", "127.0.0.1",
                  "--port", std::to_string(code.port), "--served-model-name",
                  "org/code", "--chunked-prefill-size", "2048",
                  "--max-running-requests", "256", "--context-length", "4096"));
}

TEST_F(FleetTest, DerivedPortStaysWhenOtherEnginesComeAndGo) {
  const auto two = Read(kStock);
  const std::string more = std::string(kStock) +
                           "[[engine]]\nengine = \"vllm\"\nname = \"second\"\n"
                           "model = \"chat\"\ncheckpoint = \"c\"\n";
  const auto three = Read(more);
  ASSERT_TRUE(two.ok() && three.ok()) << three.status();
  EXPECT_EQ(two->engines[0].port, three->engines[0].port);
  EXPECT_EQ(two->engines[1].port, three->engines[1].port);
  // A derived port also avoids the port that another engine was given.
  const auto given = Read(more + "url = \"http://127.0.0.1:" +
                          std::to_string(two->engines[0].port) + "\"\n");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->engines[0].port, two->engines[0].port + 1);
}

TEST_F(FleetTest, CommandThatAsksForItsPortNeedsNoUrl) {
  const auto fleet =
      Read(std::string(kModel) +
           "[[engine]]\nmodel = \"small\"\n"
           "command = [\"serve\", \"--port={port}\", \"{name}\"]\n");
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  const FleetEngine& engine = fleet->engines[0];
  EXPECT_THAT(
      engine.command,
      ElementsAre("serve", "--port=" + std::to_string(engine.port), "small"));
}

TEST_F(FleetTest, ProfileMayBeAFileBesideTheFleetFile) {
  const auto fleet =
      Read(ModelWithProfile("kv_token_bytes = 4096\n" + std::string(kStep)) +
           kEngine + "view = false\n");
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  const FleetModel& model = fleet->models[0];
  EXPECT_EQ(model.profile, (StepProfile{8000, 20, 60}));
  EXPECT_EQ(model.profile_path, profile_path_);
  EXPECT_EQ(model.kv_token_bytes, 4096u);
  EXPECT_TRUE(model.kv_bytes_from_profile);
}

TEST_F(FleetTest, FleetFileComesBeforeTheProfileFile) {
  const auto fleet =
      Read(ModelWithProfile("kv_token_bytes = 4096\n" + std::string(kStep)) +
           "kv_token_bytes = 2048\n" + kEngine);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->models[0].kv_token_bytes, 2048u);
  EXPECT_FALSE(fleet->models[0].kv_bytes_from_profile);
}

TEST_F(FleetTest, BadProfileFileIsNamedWithTheLineThatNamesIt) {
  const std::string bad = Error(ModelWithProfile("tokens = 1\n") + kEngine);
  EXPECT_THAT(bad, HasSubstr(path_ + ":4: profile: " + profile_path_ + ":1: "));
  EXPECT_THAT(bad, HasSubstr("unknown key \"tokens\""));
  const std::string model = ModelWithProfile("");
  unlink(profile_path_.c_str());
  EXPECT_THAT(Error(model + kEngine),
              HasSubstr("No such file or directory; fsctl profile URL"));
  EXPECT_THAT(Error("[[model]]\nprofile = 1\n"),
              HasSubstr(":2: profile: must be a file in quotes, or like {"));
}

TEST_F(FleetTest, AbsentFileIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(ReadFleet("/nonexistent.toml").status()));
}

namespace fs = std::filesystem;

// Links files as Kubernetes mounts a ConfigMap: fleet.toml → ..data/fleet.toml,
// and ..data → the folder of the current version.
class FleetPathTest : public testing::Test {
 protected:
  FleetPathTest() {
    char path[] = "/tmp/fleet_path_test.XXXXXX";
    folder_ = mkdtemp(path);
    for (const char* version : {"1", "2"}) {
      fs::create_directory(folder_ / version);
      std::ofstream(folder_ / version / "fleet.toml") << version;
    }
    fs::create_symlink("1", folder_ / "..data");
    fs::create_symlink("..data/fleet.toml", folder_ / "fleet.toml");
  }
  ~FleetPathTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(FleetPathTest, UpdatedConfigMapIsTheSameFleet) {
  const std::string before = FleetPath(folder_ / "fleet.toml");
  fs::remove(folder_ / "..data");
  EXPECT_TRUE(IsSameFleet(before, FleetPath(folder_ / "fleet.toml")));
  fs::create_symlink("2", folder_ / "..data");
  EXPECT_TRUE(IsSameFleet(before, FleetPath(folder_ / "fleet.toml")));
}

TEST_F(FleetPathTest, FileHasOneFleetHoweverItsPathIsWritten) {
  const std::string path = FleetPath(folder_ / "fleet.toml");
  EXPECT_TRUE(IsSameFleet(path, FleetPath(folder_ / "1/../1/fleet.toml")));
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(FleetPath("fleet.toml"), path);
  fs::current_path(before);
}

TEST_F(FleetPathTest, OtherFileIsAnotherFleet) {
  const std::string path = FleetPath(folder_ / "fleet.toml");
  EXPECT_FALSE(IsSameFleet(path, folder_ / "2/fleet.toml"));
  EXPECT_FALSE(IsSameFleet(path, folder_ / "missing.toml"));
}

}  // namespace

}  // namespace fineserve::config

// fsctl profile on a tinyserve whose step times are known: what it finds, what
// it refuses, and what it leaves behind when either of the two ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/fleet/config/profile_file.h"
#include "tests/integration/serving/serving_site.h"
#include "tests/integration/serving/tiny_engine.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kBaseUs = 15'000, kTokenUs = 200, kSequenceUs = 2000;

class ProfileTest : public ServingSite {
 protected:
  std::unique_ptr<TinyEngine> StartAlone(std::vector<std::string> arguments) {
    Process::Environment environment = EngineEnvironment();
    environment["LD_PRELOAD"] = "";
    return std::make_unique<TinyEngine>(Program("tinyserve"), "tiny",
                                        std::move(arguments), environment);
  }
  // Starts an engine whose steps are so long that a few milliseconds of delay
  // on either side change little.
  std::unique_ptr<TinyEngine> StartSlow() {
    return StartAlone({"--step-base-us", absl::StrCat(kBaseUs),
                       "--step-token-us", absl::StrCat(kTokenUs),
                       "--step-sequence-us", absl::StrCat(kSequenceUs)});
  }
  static std::string UrlOf(const TinyEngine& engine) {
    return absl::StrCat("http://127.0.0.1:", engine.port());
  }
  std::unique_ptr<Process> Profile(const TinyEngine& engine) {
    return LaunchProgram(
        {"fsctl", "profile", UrlOf(engine), "--output", output_});
  }
  // The profile and its drafts.
  size_t FilesOfOutput() const {
    size_t files = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder())) {
      files += absl::StartsWith(file.path().string(), output_) ? 1 : 0;
    }
    return files;
  }
  bool IsWithin(double part, const config::StepProfile& step) const {
    const auto near = [&](double found, double is) {
      return found > (1 - part) * is && found < (1 + part) * is;
    };
    return near(step.base_us, kBaseUs) && near(step.per_token_us, kTokenUs) &&
           near(step.per_sequence_us, kSequenceUs);
  }

  const std::string output_ = folder() + "/tiny.profile.toml";
};

// A busy machine may disturb one measurement, but not all five.
TEST_F(ProfileTest, FindsTheStepTimesOfTheEngine) {
  constexpr double kTolerance = 0.25;
  const auto engine = StartSlow();
  config::MeasuredProfile found;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const Finished run =
        Fsctl({"profile", UrlOf(*engine), "--batches", "1,8", "--prompts",
               "64,256", "--chunk-tokens", "2048", "--kv-token-bytes", "4096",
               "--output", output_});
    ASSERT_EQ(run.code, 0) << run.err;
    const auto read = config::ReadProfile(output_);
    ASSERT_TRUE(read.ok()) << read.status();
    found = *read;
    ASSERT_EQ(found.points.size(), 4u);
    if (IsWithin(kTolerance, found.step)) break;
  }
  EXPECT_TRUE(IsWithin(kTolerance, found.step)) << config::ProfileText(found);
  EXPECT_EQ(found.model, "tiny");
  EXPECT_EQ(found.kv_token_bytes, 4096u);
  for (const config::ProfilePoint& p : found.points) {
    EXPECT_TRUE(p.prompt_tokens == 64 || p.prompt_tokens == 256)
        << p.prompt_tokens;
  }
}

TEST_F(ProfileTest, FleetReadsAProfileAndTheDaemonSaysSo) {
  const auto engine = StartAlone({"--speed", "50"});
  config::MeasuredProfile profile;
  profile.kv_token_bytes = 4096;
  profile.step = {8000, 20, 60};
  std::ofstream(output_) << config::ProfileText(profile);
  std::ofstream(fleet_path())
      << "[proxy]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n"
      << "[[model]]\nname = \"tiny\"\nslo_ttft_ms = 3000\n"
      << "profile = \"tiny.profile.toml\"\n"
      << "[[engine]]\nname = \"tiny-a\"\nmodel = \"tiny\"\nview = false\n"
      << "url = \"" << UrlOf(*engine) << "\"\n";
  StartDaemonOfFleet();
  StartProxy();
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(
        daemon_->Stderr(),
        absl::StrCat("engine tiny-a: KV per token from the profile ", output_,
                     "; step times from the profile ", output_));
  })) << daemon_->Stderr();
}

TEST_F(ProfileTest, JsonHasThePointsAndTheFit) {
  const auto engine = StartAlone({"--speed", "2"});
  const Finished run = Fsctl({"--json", "profile", UrlOf(*engine), "--batches",
                              "1,8", "--prompts", "64,256"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(JsonText(run.out, "/model"), "tiny");
  EXPECT_NE(JsonAt(run.out, "/profile/per_token_us"), "");
  EXPECT_EQ(JsonInt(run.out, "/points/3/batch"), 8);
}

TEST_F(ProfileTest, BusyEngineIsRefused) {
  const auto engine = StartAlone({"--speed", "50"});
  HttpClient client(engine->port());
  engine->HoldAfter(1);
  client.Send("POST", "/v1/completions",
              engine->Body("hello", 50, ", \"stream\": true"));
  engine->AwaitHold();
  const Finished run = Fsctl({"profile", UrlOf(*engine)});
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, HasSubstr("the engine is busy (requests in it: 1)"));
  EXPECT_THAT(run.err, HasSubstr("--even-if-busy"));
}

// The engine stops in the middle of its answers, so that neither the kill nor
// the interrupt depends on time.
TEST_F(ProfileTest, EngineThatDiesInTheMiddleLeavesTheOldFile) {
  std::ofstream(output_) << "old";
  const auto engine = StartAlone({"--speed", "50"});
  engine->HoldAfter(20);
  const auto fsctl = Profile(*engine);
  engine->AwaitHold();
  engine->process().Signal(SIGKILL);
  EXPECT_EQ(fsctl->Wait(), 1);
  EXPECT_THAT(fsctl->Stderr(),
              StartsWith(absl::StrCat("fsctl: ", UrlOf(*engine),
                                      ": the engine broke off an answer")));
  std::string text;
  std::getline(std::ifstream(output_), text);
  EXPECT_EQ(text, "old");
}

TEST_F(ProfileTest, InterruptWritesNothing) {
  const auto engine = StartAlone({"--speed", "50"});
  engine->HoldAfter(20);
  const auto fsctl = Profile(*engine);
  engine->AwaitHold();
  EXPECT_EQ(fsctl->EndBy(SIGINT), 1);
  EXPECT_THAT(fsctl->Stderr(),
              HasSubstr("interrupted; no profile was written"));
  EXPECT_EQ(FilesOfOutput(), 0u);
}

TEST_F(ProfileTest, MistakesAreOneLineWithTheFix) {
  const auto engine = StartAlone({"--speed", "50"});
  const std::string url = UrlOf(*engine);
  const struct {
    const char* name;
    std::vector<std::string> arguments;
    int code;
    std::string error;
  } kCases[] = {
      {"no scheme", {"127.0.0.1:9001"}, 2, "does not begin with http://"},
      {"no host", {"http://no-such-host.invalid:1"}, 1, "no answer: Host not"},
      {"no server listens",
       {"http://127.0.0.1:1"},
       1,
       "Connection refused; does"},
      {"another model", {url, "--model", "gpt"}, 1, "it serves: tiny"},
      {"one batch", {url, "--batches", "8"}, 2, "give --batches two at least"},
      {"zero", {url, "--prompts", "0"}, 2, "see fsctl profile --help"},
      {"too long", {url, "--prompts", "5000"}, 1, "the model's 4096; give"},
      {"no such key", {url, "--api-key-file", "/no"}, 2, "must be the key"},
      {"no such folder", {url, "--output", "/no/p"}, 1, "cannot write /no/p"},
      {"bad size", {url, "--weights", "much"}, 2, "is not a size like"},
      {"no time",
       {url, "--budget", "0.000001"},
       1,
       "give more time with --budget"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    std::vector<std::string> arguments = {"profile"};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    const Finished run = Fsctl(arguments);
    EXPECT_EQ(run.code, c.code);
    EXPECT_THAT(run.err, HasSubstr(c.error));
    EXPECT_THAT(run.err, StartsWith("fsctl: "));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace fineserve::integration

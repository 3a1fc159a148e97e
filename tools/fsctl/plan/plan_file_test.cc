#include "tools/fsctl/plan/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "daemon/fleet/config/profile_file.h"

namespace fineserve::config {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"([[gpu]]
name = "gpu"
node = "a"
memory = "80GiB"
taken = "1GiB"
pool = "40GiB"
count = 2

[[profile]]
architecture = "llama"
quantisation = "fp16"
weights = "15GiB"
kv_token_bytes = 131072
points = [[1, 256, 0.01, 0.008], [8, 256, 0.05, 0.009]]

[[model]]
name = "chat"
architecture = "llama"
quantisation = "fp16"
rate = 2.5
prompt_tokens = 242
output_tokens = 327
slo_ttft_ms = 800
pins = ["gpu-1"]

[[placed]]
model = "chat"
gpus = ["gpu-1"]
)";

std::string Path() {
  return testing::TempDir() + "plan_file_" + std::to_string(getpid()) + ".toml";
}

absl::StatusOr<plan::Snapshot> ReadPlan(const std::string& text) {
  std::ofstream(Path()) << text;
  auto read = ReadPlanFile(Path());
  unlink(Path().c_str());
  return read;
}

TEST(PlanFile, TakesFromAProfileFileWhatItDoesNotSay) {
  MeasuredProfile measured;
  measured.architecture = "llama";
  measured.quantisation = "fp8";  // the plan file says fp16
  measured.tp = 2;
  measured.weight_bytes = 1e9;
  measured.kv_token_bytes = 4096;
  measured.step = {8000, 20, 60};
  measured.points = {{1, 256, 0.01, 0.008}, {8, 256, 0.05, 0.009}};
  const std::string file = Path() + ".profile";
  std::ofstream(file) << ProfileText(measured);
  std::string text = kGood;
  const size_t from = text.find("architecture = \"llama\""),
               to = text.find("\n\n[[model]]");
  text.replace(from, to - from,
               "quantisation = \"fp16\"\nweights = \"15GiB\"\nfile = \"" +
                   file.substr(file.rfind('/') + 1) + "\"");
  text.insert(text.find("rate = "), "tp = 2\n");
  text.replace(text.find("gpus = [\"gpu-1\"]"), 16,
               "gpus = [\"gpu-0\", \"gpu-1\"]");
  text.erase(text.find("pins"), text.find("[[placed]]") - text.find("pins"));
  const auto s = ReadPlan(text);
  ASSERT_TRUE(s.ok()) << s.status();
  const plan::Profile expected = {
      "llama",
      "fp16",
      2,
      15.0 * (1 << 30),
      0,
      4096,
      {{1, 256, 0.01, 0.008}, {8, 256, 0.05, 0.009}}};
  EXPECT_EQ(s->profiles[0], expected);
  unlink(file.c_str());
  EXPECT_THAT(std::string(ReadPlan(text).status().message()),
              HasSubstr("file: " + file +
                        ": cannot be read: No such file or "
                        "directory; fsctl profile URL"));
}

TEST(PlanFile, SaysAllThatIsPlanned) {
  const auto s = ReadPlan(absl::StrReplaceAll(
      kGood, {{"pins = ", "groups = [[\"gpu-1\"], [\"gpu-0\"]]\npins = "}}));
  ASSERT_TRUE(s.ok()) << s.status();
  ASSERT_EQ(s->gpus.size(), 2u);
  EXPECT_EQ(s->gpus[1].name, "gpu-1");
  EXPECT_EQ(s->gpus[1].Capacity(), 79.0 * (1 << 30));
  EXPECT_EQ(s->gpus[1].pool_bytes, 40.0 * (1 << 30));
  ASSERT_EQ(s->profiles.size(), 1u);
  EXPECT_EQ(s->profiles[0].points[1],
            (plan::OperatingPoint{8, 256, 0.05, 0.009}));
  ASSERT_EQ(s->models.size(), 1u);
  EXPECT_DOUBLE_EQ(s->models[0].slo_ttft_s, 0.8);
  EXPECT_EQ(s->models[0].groups,
            (std::vector<std::vector<std::string>>{{"gpu-1"}, {"gpu-0"}}));
  EXPECT_EQ(s->current, (std::vector<plan::Placed>{{"chat", {"gpu-1"}}}));
}

TEST(PlanFile, SaysWhatHostsHaveAndWhatRestsThere) {
  const auto without = ReadPlan(kGood);
  ASSERT_TRUE(without.ok());
  EXPECT_TRUE(without->nodes.empty());
  EXPECT_FALSE(without->models[0].may_rest);
  std::string text = kGood;
  text.insert(text.find("pins = "),
              "context = \"512MiB\"\nprocess = \"6GiB\"\nmay_rest = true\n");
  const auto s = ReadPlan(text + "[[node]]\nname = \"a\"\nhost = \"1TiB\"\n");
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->nodes, (std::vector<plan::Node>{{"a", 1024.0 * (1 << 30)}}));
  EXPECT_EQ(s->models[0].context_bytes, 0.5 * (1 << 30));
  EXPECT_EQ(s->models[0].process_bytes, 6.0 * (1 << 30));
  EXPECT_TRUE(s->models[0].may_rest);
}

TEST(PlanFile, MistakeIsOneLineWithItsPlace) {
  struct Case {
    const char* from;
    const char* to;
    const char* says;
  };
  const Case cases[] = {
      {"rate = 2.5", "rate = 0", "leave the model out"},
      {"rate = 2.5", "rate = nan", ":20: rate: must be a number"},
      {"rate = 2.5", "speed = 2.5", ":20: unknown key \"speed\""},
      {"[1, 256, 0.01, 0.008]", "[1, 256]", "must be batch, prompt tokens"},
      {"\"80GiB\"", "80", ":4: memory: must be a size in quotes"},
      {"quantisation = \"fp16\"\nrate", "quantisation = \"int4\"\nrate",
       "fsctl profile"},
      {"[[placed]]", "[[node]]\nname = \"b\"\nhost = \"1TiB\"\n[[placed]]",
       "node \"b\": no GPU is on it; mend its name"},
      {"[[placed]]", "[[node]]\nname = \"a\"\n[[placed]]",
       "node \"a\": its host memory is not a size above 0"},
      {"pins = [", "context = 512\npins = [",
       ":24: context: must be a size in quotes"},
  };
  for (const Case& c : cases) {
    std::string text = kGood;
    const size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, std::string(c.from).size(), c.to);
    const auto s = ReadPlan(text);
    ASSERT_FALSE(s.ok()) << c.to;
    EXPECT_THAT(std::string(s.status().message()), HasSubstr(c.says));
    EXPECT_THAT(std::string(s.status().message()),
                testing::Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace fineserve::config

#include "daemon/fleet/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace fineserve::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() { close(mkstemp(path_)); }
  ~ConfigTest() override { unlink(path_); }

  absl::StatusOr<Config> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadConfig(path_);
  }
  std::string ErrorOf(const std::string& text) {
    return std::string(Read(text).status().message());
  }

  char path_[32] = "/tmp/fineserve-config-XXXXXX";
};

TEST_F(ConfigTest, StoreFollowsTheHostUnlessItHasASize) {
  EXPECT_TRUE(Read("")->store.is_auto);
  const auto c = Read("[store]\nsize = \"64GiB\"\n");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_FALSE(c->store.is_auto);
  EXPECT_EQ(c->store.bytes, uint64_t{64} << 30);
}

TEST_F(ConfigTest, PoolMayBeWhatIsFree) {
  const auto c = Read("[pool]\nsize = \"auto\"\n");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_TRUE(c->pool.is_auto);
}

TEST_F(ConfigTest, EveryKeyIsRead) {
  const auto c = Read(R"(
gpu = "emulated"
runtime_dir = "/run/x"
log_level = "debug"
metrics = "0.0.0.0:9470"
[pool]
size = "16GiB"
reserve = "40%"
max = "32GiB"
planes = 64
slab = "128MiB"
[[engine]]
name = "vllm-*"
kv_sizes = ["512MiB", "1G"]
floor = "2GiB"
cap = "4GiB"
)");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->gpu, "emulated");
  EXPECT_EQ(c->runtime_dir, "/run/x");
  EXPECT_EQ(c->log_level, "debug");
  EXPECT_EQ(c->metrics, (ListenAddress{"0.0.0.0", 9470, true}));
  EXPECT_EQ(c->pool.bytes, 16ull << 30);
  EXPECT_FALSE(c->pool.is_auto);
  EXPECT_EQ(c->reserve.percent, 40u);
  EXPECT_EQ(c->max_pool_bytes, 32ull << 30);
  EXPECT_EQ(c->planes, 64u);
  EXPECT_EQ(c->slab_bytes, 128ull << 20);
  EXPECT_THAT(RuleOf(*c, "vllm-llama").kv_sizes,
              ElementsAre(512ull << 20, 1ull << 30));
  EXPECT_EQ(RuleOf(*c, "vllm-llama").floor_bytes, 2ull << 30);
  EXPECT_EQ(RuleOf(*c, "vllm-llama").cap_bytes, 4ull << 30);
  EXPECT_THAT(RuleOf(*c, "other").kv_sizes, ElementsAre());
}

TEST_F(ConfigTest, MetricsAreOffOrOnThisMachineUnlessSaidOtherwise) {
  EXPECT_FALSE(Read("")->metrics.on);
  const ListenAddress here = {"127.0.0.1", 9470, true};
  EXPECT_EQ(Read("metrics = \"9470\"")->metrics, here);
  EXPECT_EQ(Read("metrics = \":9470\"")->metrics, here);
  EXPECT_EQ(Read("metrics = \"[::]:9470\"")->metrics,
            (ListenAddress{"::", 9470, true}));
  EXPECT_FALSE(Read("metrics = \"off\"")->metrics.on);
  EXPECT_THAT(ErrorOf("metrics = \"here\""),
              HasSubstr(":1: metrics: bad address \"here\"; write it like "
                        "127.0.0.1:9470"));
  EXPECT_THAT(ErrorOf("metrics = 9470"), HasSubstr("an address in quotes"));
}

TEST_F(ConfigTest, CapBelowFloorIsAnErrorThatNamesBoth) {
  const std::string error =
      ErrorOf("[[engine]]\nname = \"a\"\nfloor = \"2GiB\"\ncap = \"1GiB\"\n");
  EXPECT_THAT(error, HasSubstr(std::string(path_) + ":1: "));
  EXPECT_THAT(error, HasSubstr("cap 1 GiB is less than floor 2 GiB"));
}

TEST_F(ConfigTest, UnknownKeyNamesFileLineAndKnownKeys) {
  const std::string error = ErrorOf("gpu = \"0\"\n[pool]\nsice = \"1GiB\"\n");
  EXPECT_THAT(error,
              HasSubstr(std::string(path_) + ":3: unknown key \"sice\""));
  EXPECT_THAT(error, HasSubstr("headroom, max, planes, reserve, size, slab"));
}

TEST_F(ConfigTest, BadSizeNamesLineValueAndFix) {
  const std::string error = ErrorOf("[pool]\nsize = \"16 gigs\"\n");
  EXPECT_THAT(error, HasSubstr(std::string(path_) + ":2: "));
  EXPECT_THAT(error, HasSubstr("bad size \"16 gigs\""));
  EXPECT_THAT(error, HasSubstr("like 512MiB"));
}

TEST_F(ConfigTest, BadElementOfAListNamesItsLine) {
  EXPECT_THAT(ErrorOf("[[engine]]\nname = \"a\"\nkv_sizes = [\"1GiB\", 5]\n"),
              HasSubstr(std::string(path_) + ":3: kv_sizes"));
}

TEST_F(ConfigTest, BrokenTomlNamesItsLine) {
  EXPECT_THAT(ErrorOf("gpu = \"0\"\n[pool\n"),
              HasSubstr(std::string(path_) + ":2: "));
}

TEST_F(ConfigTest, EngineWithoutANameIsRefused) {
  EXPECT_THAT(ErrorOf("[[engine]]\nkv_sizes = [\"1GiB\"]\n"),
              HasSubstr("needs a name"));
}

TEST_F(ConfigTest, NumberWhereASizeBelongsIsRefused) {
  EXPECT_THAT(ErrorOf("[pool]\nsize = 16\n"), HasSubstr("a size in quotes"));
}

TEST_F(ConfigTest, UnknownLogLevelNamesTheChoices) {
  EXPECT_THAT(ErrorOf("log_level = \"loud\"\n"),
              HasSubstr(":1: log_level: must be one of trace, debug"));
}

TEST_F(ConfigTest, RuleIsReadWholeAndForItsEnginesOnly) {
  const auto c = Read(R"(
shipped_rules = []
[[rule]]
name = "mine"
engine = "my-*"
frames = ["pool_allocate", "KvCache::KvCache"]
module = "libmine*.so"
min_bytes = "64MiB"
max_bytes = "1TiB"
kv = false
)");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_TRUE(RulesFor(*c, "other").empty());
  const std::vector<abi::Rule> rules = RulesFor(*c, "my-engine");
  ASSERT_EQ(rules.size(), 1u);
  const abi::Rule& r = rules[0];
  EXPECT_STREQ(r.name, "mine");
  EXPECT_STREQ(r.module, "libmine*.so");
  ASSERT_EQ(r.frame_count, 2u);
  EXPECT_STREQ(r.frames[1], "_Z*7KvCacheC*");
  EXPECT_EQ(r.min_bytes, 64ull << 20);
  EXPECT_EQ(r.max_bytes, 1ull << 40);
  EXPECT_EQ(r.kv, 0u);
}

TEST_F(ConfigTest, OwnRulesComeBeforeTheShippedOnes) {
  const auto c = Read("[[rule]]\nname = \"mine\"\nframes = [\"f\"]\n");
  ASSERT_TRUE(c.ok()) << c.status();
  std::vector<std::string> names;
  for (const abi::Rule& r : RulesFor(*c, "x")) names.push_back(r.name);
  EXPECT_THAT(names, ElementsAre("mine", "llama.cpp", "llama.cpp-2024",
                                 "tensorrt-llm"));
}

TEST_F(ConfigTest, ShippedRulesAreChosenByName) {
  const auto c = Read("shipped_rules = [\"vllm-cumem\"]\n");
  ASSERT_TRUE(c.ok()) << c.status();
  ASSERT_EQ(RulesFor(*c, "x").size(), 1u);
  EXPECT_STREQ(RulesFor(*c, "x")[0].name, "vllm-cumem");
  EXPECT_THAT(ErrorOf("shipped_rules = [\"vllm\"]\n"),
              HasSubstr(":1: shipped_rules: must be one of llama.cpp"));
}

TEST_F(ConfigTest, BadRuleNamesItsLineAndTheFix) {
  EXPECT_THAT(ErrorOf("\n[[rule]]\nname = \"x\"\n"),
              HasSubstr(":2: [[rule]] \"x\": a [[rule]] needs frames"));
  EXPECT_THAT(ErrorOf("[[rule]]\nframes = [\"f\"]\n"),
              HasSubstr("needs a name"));
  EXPECT_THAT(ErrorOf("[[rule]]\nname = \"x\"\nframes = [\"f()\"]\n"),
              HasSubstr("bad function \"f()\""));
  EXPECT_THAT(ErrorOf("[[rule]]\nname = \"x\"\nframe = [\"f\"]\n"),
              HasSubstr(":3: unknown key \"frame\""));
  EXPECT_THAT(ErrorOf("[[rule]]\nname = \"x\"\nkv = 1\n"),
              HasSubstr(":3: kv: must be true or false"));
  EXPECT_THAT(ErrorOf("[[rule]]\nname = \"x\"\nframes = [\"f\"]\n"
                      "min_bytes = \"2GiB\"\nmax_bytes = \"1GiB\"\n"),
              HasSubstr("min_bytes is above max_bytes"));
}

TEST_F(ConfigTest, MoreRulesThanTheShimHoldsAreRefused) {
  std::string text;
  for (int i = 0; i < 15; ++i) {
    text += "[[rule]]\nname = \"x\"\nframes = [\"f\"]\n";
  }
  EXPECT_THAT(ErrorOf(text), HasSubstr("at most 16 together"));
}

TEST_F(ConfigTest, MissingFileSaysSo) {
  EXPECT_EQ(ReadConfig("/nonexistent.toml").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ConfigTest, FolderInPlaceOfAFileSaysSo) {
  const absl::Status s = ReadConfig("/tmp").status();
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(s.message()), HasSubstr("Is a directory"));
}

TEST_F(ConfigTest, CharacterThatIsNotAsciiIsNamedWithItsLine) {
  EXPECT_THAT(ErrorOf("# für\n\xc3\x91 = 1\n"), HasSubstr(":2: "));
  EXPECT_THAT(ErrorOf("\ngpu = -'\xef\xbb\x9f\n"), HasSubstr(":2: "));
}

TEST(RuleOfTest, FleetSaysFloorAndCapWhereNoRuleDoes) {
  Config c;
  c.engines = {{"llama*", {4096}}, {"qwen*", {}, 1, 2}};
  c.fleet.emplace();
  for (const char* name : {"llama-a", "qwen-a", "other"}) {
    c.fleet->engines.push_back({});
    c.fleet->engines.back().name = name;
    c.fleet->engines.back().floor_bytes = 10;
    c.fleet->engines.back().cap_bytes = 20;
  }
  EXPECT_EQ(RuleOf(c, "llama-a").floor_bytes, 10u);
  EXPECT_EQ(RuleOf(c, "llama-a").cap_bytes, 20u);
  EXPECT_EQ(RuleOf(c, "llama-a").kv_sizes.size(), 1u);
  EXPECT_EQ(RuleOf(c, "qwen-a").floor_bytes, 1u);
  EXPECT_EQ(RuleOf(c, "qwen-a").cap_bytes, 2u);
  EXPECT_EQ(RuleOf(c, "other").floor_bytes, 10u);
  EXPECT_EQ(RuleOf(c, "unknown").floor_bytes, 0u);
}

}  // namespace
}  // namespace fineserve::config

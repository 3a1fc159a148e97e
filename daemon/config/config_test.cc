#include "daemon/config/config.h"

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

TEST_F(ConfigTest, EveryKeyIsRead) {
  const auto c = Read(R"(
gpu = "emulated"
runtime_dir = "/run/x"
log_level = "debug"
[pool]
size = "16GiB"
planes = 64
slab = "128MiB"
[[engine]]
name = "vllm-*"
kv_sizes = ["512MiB", "1G"]
)");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->gpu, "emulated");
  EXPECT_EQ(c->runtime_dir, "/run/x");
  EXPECT_EQ(c->log_level, "debug");
  EXPECT_EQ(c->pool_bytes, 16ull << 30);
  EXPECT_EQ(c->planes, 64u);
  EXPECT_EQ(c->slab_bytes, 128ull << 20);
  EXPECT_THAT(DeclaredSizes(*c, "vllm-llama"),
              ElementsAre(512ull << 20, 1ull << 30));
  EXPECT_THAT(DeclaredSizes(*c, "other"), ElementsAre());
}

TEST_F(ConfigTest, UnknownKeyNamesFileLineAndKnownKeys) {
  const std::string error = ErrorOf("gpu = \"0\"\n[pool]\nsice = \"1GiB\"\n");
  EXPECT_THAT(error,
              HasSubstr(std::string(path_) + ":3: unknown key \"sice\""));
  EXPECT_THAT(error, HasSubstr("planes, size, slab"));
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

TEST_F(ConfigTest, MissingFileSaysSo) {
  EXPECT_EQ(ReadConfig("/nonexistent.toml").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace fineserve::config

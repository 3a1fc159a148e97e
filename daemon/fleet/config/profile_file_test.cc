#include "daemon/fleet/config/profile_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace fineserve::config {
namespace {

using ::testing::HasSubstr;

class ProfileFileTest : public ::testing::Test {
 protected:
  void TearDown() override { unlink(path_.c_str()); }

  absl::StatusOr<MeasuredProfile> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadProfile(path_);
  }

  const std::string path_ =
      ::testing::TempDir() + "profile-" + std::to_string(getpid()) + ".toml";
};

// Returns a profile with every key, each with a value other than its usual one.
MeasuredProfile Everything() {
  MeasuredProfile p;
  p.model = "a \"quoted\" \\ name\nof two lines";
  p.url = "http://127.0.0.1:9001";
  p.chunk_tokens = 512;
  p.architecture = "llama-3.1-8b";
  p.quantisation = "fp8";
  p.tp = 2;
  p.weight_bytes = 16060522496;
  p.activation_bytes = 0.1 + 0.2;
  p.kv_token_bytes = UINT32_MAX;
  p.step = {7600, 1.0 / 3, 6.4e-7};
  p.decode_base_us = 7599.5;
  p.quality = {{80, 0.1, 2}, 0.03, 0.01};
  p.points = {{1, 64, 0.0086, 0.0077, 0.01, 0, 3},
              {32, 1021, 1.25, 0.0098, 0.02, 0.003, 5}};
  return p;
}

TEST_F(ProfileFileTest, WrittenProfileIsReadBack) {
  const auto read = Read(ProfileText(Everything()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Everything());
}

TEST_F(ProfileFileTest, UnknownValuesAreNotWritten) {
  MeasuredProfile p = Everything();
  p.weight_bytes = 0;
  p.quantisation = "";
  const std::string text = ProfileText(p);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("weight_bytes")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("quantisation")));
  const auto read = Read(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, p);
}

TEST_F(ProfileFileTest, MistakesAreNamedWithTheirLineAndTheFix) {
  const std::string step = "[step]\nper_token_us = 1\n";
  const struct {
    const char* name;
    std::string text;
    std::string error;
  } kCases[] = {
      {"nothing", "", ":1: no per_token_us above 0 in [step]; measure it"},
      {"unknown key", "speed = 1\n", ":1: unknown key \"speed\""},
      {"not a number", "[step]\nbase_us = nan\n", ":2: base_us: must be"},
      {"infinite", "weight_bytes = inf\n", "must be a number, not negative"},
      {"too large for a number", "weight_bytes = 9007199254740993\n",
       ":1: weight_bytes: must be"},
      {"point without times", step + "[[point]]\nbatch = 1\n",
       ":3: a [[point]] needs batch, prompt_tokens, ttft_s and step_s"},
      {"no batch", step + "[[point]]\nbatch = 0\n", ":4: batch: must be"},
      {"cut off", step + "[[point]]\nbat", ":4: "},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    const auto read = Read(c.text);
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(c.error));
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(path_));
  }
}

}  // namespace
}  // namespace fineserve::config

#include "tools/fsctl/profile/profile_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Conclusion Example() {
  Conclusion c;
  c.profile.model = "llama";
  c.profile.url = "http://127.0.0.1:9001";
  c.profile.chunk_tokens = 2048;
  c.profile.step = {7600, 16, 64};
  c.profile.decode_base_us = 7500;
  c.profile.quality = {{40, 0.1, 0}, 0.031, 0.004};
  c.profile.points = {{8, 64, 0.0235, 0.008, 0.01, 0.02, 3}};
  c.chunk_found = true;
  c.warnings = {"doubt"};
  return c;
}

TEST(ProfileOutputTest, TextHasThePointsTheFitAndTheFleetFilesLine) {
  const std::string text = ConclusionText(Example(), false);
  EXPECT_THAT(text, HasSubstr("23.50 ms  8.00 ms"));
  EXPECT_THAT(text, HasSubstr("1000   2.0 %")) << "8 sequences in 8 ms";
  EXPECT_THAT(text, HasSubstr("base 7600 µs ± 80, prompt token 16 µs ± 0.2, "
                              "sequence 64 µs;"));
  EXPECT_THAT(text, HasSubstr("3.1 % of TTFT, 0.4 % of a step"));
  EXPECT_THAT(text, HasSubstr("chunks of 2048 (fits best)"));
  EXPECT_THAT(text, HasSubstr("profile = { base_us = 7600, per_token_us = 16, "
                              "per_sequence_us = 64 }"));
}

TEST(ProfileOutputTest, LargeNumbersHaveNoExponents) {
  Conclusion c = Example();
  c.profile.step = {123456.7, 0.01234, 399.2};
  c.profile.quality.standard_errors = {1860, 0.00012, 132};
  EXPECT_THAT(ConclusionText(c, false),
              HasSubstr("base 123457 µs ± 3720, prompt token 0.01234 µs ± "
                        "0.00024, sequence 399.2 µs ± 264;"));
}

TEST(ProfileOutputTest, JsonHasEveryFigure) {
  const auto json = nlohmann::json::parse(ConclusionJson(Example()));
  EXPECT_EQ(json["profile"]["base_us"], 7600);
  EXPECT_EQ(json["profile"]["decode_base_us"], 7500);
  EXPECT_EQ(json["standard_errors"]["base_us"], 40);
  EXPECT_EQ(json["points"][0]["tokens_per_s"], 1000);
  EXPECT_EQ(json["points"][0]["step_spread"], 0.02);
  EXPECT_EQ(json["warnings"][0], "doubt");
  EXPECT_EQ(json["chunk_found"], true);
}

TEST(ProgressTextTest, ShowsHowMuchIsDoneAndHowLongTheRestTakes) {
  const std::string text =
      ProgressText({12, 48, 30, 300, "batch 8, 64 tokens"}, 120);
  EXPECT_EQ(text,
            "[======>                 ] 12/48  batch 8, 64 tokens  30 s, about "
            "90 s left");
}

TEST(ProgressTextTest, RestIsNotLongerThanTheBudget) {
  EXPECT_THAT(ProgressText({1, 48, 30, 70, "x"}, 120),
              HasSubstr("about 40 s left"));
}

TEST(ProgressTextTest, BeginsWithoutAGuessAndFitsTheTerminal) {
  EXPECT_THAT(ProgressText({0, 48, 0, 300, "warming up"}, 120),
              Not(HasSubstr("left")));
  EXPECT_EQ(ProgressText({12, 48, 30, 300, "x"}, 20).size(), 20u);
}

class NewFileTest : public ::testing::Test {
 protected:
  NewFileTest() { std::filesystem::create_directory(folder_); }
  ~NewFileTest() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ =
      ::testing::TempDir() + "new-file-" + std::to_string(getpid());
  const std::string path_ = folder_ + "/profile.toml";
};

TEST_F(NewFileTest, PlaceThatCannotBeIsKnownBeforehand) {
  EXPECT_THAT(std::string(CheckWritable(folder_ + "/no/p.toml").message()),
              HasSubstr("No such file or directory"));
  for (const std::string& place : {folder_, std::string("/dev/full")}) {
    EXPECT_THAT(std::string(CheckWritable(place).message()),
                HasSubstr("is not a regular file; choose another"));
  }
  EXPECT_THAT(std::string(WriteProfile(folder_ + "/no/p.toml", "x").message()),
              HasSubstr("No such file or directory; choose another"));
}

}  // namespace

}  // namespace fineserve::fsctl

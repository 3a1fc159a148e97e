#include "tools/fsctl/profile/engine_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;

constexpr char kOne[] =
    R"({"object":"list","data":[{"id":"llama","max_model_len":4096}]})";
constexpr char kTwo[] = R"({"data":[{"id":"base"},{"id":"lora"}]})";

std::string Trouble(const openai::Page& page, const std::string& wanted) {
  const auto model = ChooseModel(page, wanted);
  EXPECT_FALSE(model.ok());
  return std::string(model.status().message());
}

TEST(ChooseModelTest, OnlyModelNeedsNoName) {
  const auto model = ChooseModel({200, kOne}, "");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "llama");
  EXPECT_EQ(model->most_tokens, 4096u);
  EXPECT_EQ(ChooseModel({200, kTwo}, "lora")->name, "lora");
}

TEST(ChooseModelTest, ServerWithoutTheListTakesTheUsersWord) {
  EXPECT_EQ(ChooseModel({404, "{}"}, "llama")->name, "llama");
  EXPECT_EQ(ChooseModel({200, "<html>"}, "llama")->name, "llama");
}

TEST(ChooseModelTest, MistakesAreNamedWithTheirFix) {
  EXPECT_THAT(Trouble({200, kTwo}, ""),
              HasSubstr("choose with --model: base, lora"));
  EXPECT_THAT(Trouble({200, kOne}, "gpt"),
              HasSubstr("does not serve \"gpt\"; it serves: llama"));
  EXPECT_THAT(Trouble({404, ""}, ""), HasSubstr("(HTTP 404); is this"));
  EXPECT_THAT(Trouble({401, ""}, "llama"), HasSubstr("--api-key-file"));
  EXPECT_THAT(Trouble({200, R"({"data":[{"id":7},3]})"}, ""),
              HasSubstr("does not name a model"));
}

TEST(RequestsInsideTest, SumsOverEnginesAndQueues) {
  EXPECT_EQ(RequestsInside("# HELP vllm:num_requests_running x\n"
                           "vllm:num_requests_running{engine=\"0\"} 2.0\n"
                           "vllm:num_requests_running{engine=\"1\"} 1.0\n"
                           "vllm:num_requests_waiting{engine=\"0\"} 4.0\n"
                           "vllm:num_requests_waiting_by_reason{a=\"b\"} 9\n"),
            7);
  EXPECT_EQ(RequestsInside("vllm:num_requests_running 0\n"), 0);
  EXPECT_FALSE(RequestsInside("process_cpu_seconds_total 3\n").has_value());
  EXPECT_FALSE(RequestsInside("").has_value());
}

TEST(WordRateTest, TwoPromptsTellTheRateAndWhatIsAlwaysAdded) {
  const WordRate rate = RateOf({32, 74}, {128, 266});
  EXPECT_DOUBLE_EQ(rate.tokens_a_word, 2);
  EXPECT_DOUBLE_EQ(rate.fixed_tokens, 10);
  EXPECT_EQ(rate.WordsFor(1024), 507u);
  EXPECT_EQ(rate.WordsFor(4), 1u) << "less than what is always added";
}

TEST(WordRateTest, CountsThatMakeNoSenseTakeAWordForAToken) {
  EXPECT_EQ(RateOf({32, 50}, {128, 50}).WordsFor(64), 64u);
}

}  // namespace
}  // namespace fineserve::fsctl

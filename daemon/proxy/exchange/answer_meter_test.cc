#include "daemon/proxy/exchange/answer_meter.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::proxy {
namespace {

constexpr char kStream[] =
    ": ping\n\n"
    "data: {\"choices\":[{\"text\":\"say \\\"usage\\\": 7\"}]}\n\n"
    "data:{\"choices\":[{\"text\":\"data: no event\"}]}\r\n\r\n"
    "event: x\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\": 31,"
    "\"total_tokens\":40,\"completion_tokens\":9}}\n\n"
    "data: [DONE]\n\n";

TEST(AnswerMeterTest, CountsTheSameHoweverTheStreamIsCut) {
  const absl::string_view stream = kStream;
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    AnswerMeter meter;
    for (size_t at = 0; at < stream.size(); at += piece) {
      meter.Feed(stream.substr(at, piece));
    }
    ASSERT_EQ(meter.data_events(), 3u) << "pieces of " << piece;
    ASSERT_TRUE(meter.between_events());
    ASSERT_TRUE(meter.usage().has_value());
    ASSERT_EQ(meter.usage()->prompt_tokens, 31u);
    ASSERT_EQ(meter.usage()->completion_tokens, 9u);
  }
}

TEST(AnswerMeterTest, CommentsAreNoEvents) {
  AnswerMeter meter;
  meter.Feed(": ping\n\n: data: ping\n\n");
  EXPECT_EQ(meter.data_events(), 0u);
}

TEST(AnswerMeterTest, StandsInsideAnEventUntilItsBlankLine) {
  AnswerMeter meter;
  EXPECT_TRUE(meter.between_events());
  meter.Feed("data: {\"a\":");
  EXPECT_FALSE(meter.between_events());
  meter.Feed("1}\n");
  EXPECT_FALSE(meter.between_events());
  meter.Feed("\n");
  EXPECT_TRUE(meter.between_events());
}

TEST(AnswerMeterTest, UsageOfAPlainAnswerIsFoundBehindALongText) {
  AnswerMeter meter;
  meter.Feed("{\"choices\":[{\"text\":\"" + std::string(100'000, 'x') +
             "\"}],");
  meter.Feed(
      "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,"
      "\"prompt_tokens_details\":null},\"kv_transfer_params\":null}");
  ASSERT_TRUE(meter.usage().has_value());
  EXPECT_EQ(meter.usage()->prompt_tokens, 5u);
  EXPECT_EQ(meter.usage()->completion_tokens, 2u);
}

TEST(AnswerMeterTest, UsageOfResponsesAndMessagesHasOtherNames) {
  AnswerMeter meter;
  meter.Feed(
      "\"usage\":{\"input_tokens\":5,\"input_tokens_details\":{\"cached_"
      "tokens\":"
      "1},\"output_tokens\":2}}");
  ASSERT_TRUE(meter.usage().has_value());
  EXPECT_EQ(meter.usage()->prompt_tokens, 5u);
  EXPECT_EQ(meter.usage()->completion_tokens, 2u);
}

TEST(AnswerMeterTest, NoUsageAndNullUsageAreNone) {
  AnswerMeter meter;
  EXPECT_FALSE(meter.usage().has_value());
  meter.Feed("data: {\"usage\":null}\n\n");
  EXPECT_FALSE(meter.usage().has_value());
}

TEST(AnswerMeterTest, TextThatQuotesUsageIsNotUsage) {
  AnswerMeter meter;
  meter.Feed(R"({"text":"\"usage\":{\"prompt_tokens\":99}"})");
  EXPECT_FALSE(meter.usage().has_value());
}

}  // namespace
}  // namespace fineserve::proxy

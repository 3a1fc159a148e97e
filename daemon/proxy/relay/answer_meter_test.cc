#include "daemon/proxy/relay/answer_meter.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::proxy {
namespace {

struct Case {
  const char* name;
  const char* before;  // shows nothing
  const char* shows;   // behind it
  bool error;
};

constexpr Case kCases[] = {
    {"Chat", "", "data: {\"id\":\"chatcmpl-1\",\"choices\":[]}\n\n", false},
    {"Comments", ": keep-alive\n\n: data: x\n\nretry: 3\n\n", "data: 1\n\n",
     false},
    {"EmptyData", "data:\n\ndata: \r\n\r\n", "data: 1\n\n", false},
    {"Responses",
     "event: response.created\ndata: {\"type\":\"response.created\"}\n\n"
     "event: response.in_progress\r\ndata: {\"a\":{}}\r\n\r\n",
     "event: response.output_item.added\ndata: {}\n\n", false},
    {"QueuedResponse", "event: response.queued\ndata: {}\n\n",
     "event: response.completed\ndata: {}\n\n", false},
    {"Messages", "event: ping\ndata: {\"type\": \"ping\"}\n\n",
     "event: message_start\ndata: {\"type\":\"message_start\"}\n\n", false},
    {"EndOfAnEmptyStream", "", "data: [DONE]\n\n", false},
    {"NoError", "", "data: {\"error\":null,\"id\":1}\n\n", false},
    {"ErrorOfChats", ": keep-alive\n\n",
     "data: {\"error\": {\"message\": \"EngineCore died\"}}\n\n", true},
    {"ErrorOfSglang", "", "data:{\"error\":{\"object\":\"error\"}}\n\n", true},
    {"ErrorOfMessages", "",
     "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n", true},
    {"ErrorWithoutAName", "", "data: {\"type\": \"error\"}\n\n", true},
    {"ErrorOfResponses", "event: response.created\ndata: {}\n\n",
     "event: error\ndata: {\"code\":\"server_error\"}\n\n", true},
};

TEST(AnswerStartTest, FirstEventOfTheEnginesOwnIsFoundHoweverItIsCut) {
  for (const Case& c : kCases) {
    const std::string all = std::string(c.before) + c.shows;
    for (size_t cut = 1; cut <= all.size(); ++cut) {
      SCOPED_TRACE(std::string(c.name) + ", pieces of " + std::to_string(cut));
      AnswerStart start(200, /*streams=*/true);
      start.Feed(c.before);
      ASSERT_FALSE(start.is_known());
      AnswerStart in_pieces(200, /*streams=*/true);
      for (size_t at = 0; at < all.size(); at += cut) {
        in_pieces.Feed(absl::string_view(all).substr(at, cut));
      }
      ASSERT_TRUE(in_pieces.is_known());
      ASSERT_EQ(in_pieces.error().has_value(), c.error);
    }
  }
}

TEST(AnswerStartTest, OtherBodiesBeginWithTheirFirstByte) {
  AnswerStart start(200, /*streams=*/false);
  EXPECT_FALSE(start.is_known());
  start.Feed("");
  EXPECT_FALSE(start.is_known());
  start.Feed("{");
  EXPECT_TRUE(start.is_known());
  EXPECT_FALSE(start.error());
}

TEST(AnswerStartTest, StatusIsAnErrorOfTheEngineFrom500On) {
  for (const unsigned status : {500, 502, 503, 504}) {
    EXPECT_EQ(AnswerStart(status, false).error(), EngineError::kStatus);
  }
  for (const unsigned status : {200, 400, 404, 429, 501}) {
    EXPECT_FALSE(AnswerStart(status, false).error()) << status;
  }
}

constexpr char kStream[] =
    ": ping\n\n"
    "data: {\"choices\":[{\"text\":\"say \\\"usage\\\": 7\"}]}\n\n"
    "data:{\"choices\":[{\"text\":\"data: no event\"}]}\r\n\r\n"
    "event: message_delta\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\": "
    "31,"
    "\"total_tokens\":40,\"completion_tokens\":9}}\n\n"
    "data: [DONE]\n\n";

TEST(AnswerMeterTest, CountsTheSameHoweverTheStreamIsCut) {
  const absl::string_view stream = kStream;
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    AnswerMeter meter;
    for (size_t at = 0; at < stream.size(); at += piece) {
      meter.Feed(stream.substr(at, piece));
    }
    ASSERT_EQ(meter.token_events(), 2u) << "pieces of " << piece;
    ASSERT_TRUE(meter.between_events());
    ASSERT_TRUE(meter.usage().has_value());
    ASSERT_EQ(meter.usage()->prompt_tokens, 31u);
    ASSERT_EQ(meter.usage()->completion_tokens, 9u);
  }
}

TEST(AnswerMeterTest, ErrorIsSeenAndBringsNoToken) {
  for (const char* error :
       {"data: {\"error\": {\"message\":\"died\"}}\n\n",
        "event: error\ndata: {\"code\":\"server_error\"}\n\n",
        "data:{\"type\": \"error\"}\r\n\r\n"}) {
    AnswerMeter meter;
    meter.Feed("data: {\"choices\":[]}\n\n");
    EXPECT_FALSE(meter.has_error());
    meter.Feed(error);
    EXPECT_TRUE(meter.has_error()) << error;
    EXPECT_EQ(meter.token_events(), 1u) << error;
  }
}

struct StreamCase {
  const char* name;
  const char* before;  // the first token
  const char* first;   // the events that bring it
  const char* after;   // its tokens
};

// By endpoint, in vLLM's form.
constexpr StreamCase kStreams[] = {
    {"Completions", ": keep-alive\n\n",
     "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n",
     "data: [DONE]\n\n"},
    {"Chats", ": data: keep-alive\n\n",
     "data: "
     "{\"id\":\"c\",\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n",
     "data: [DONE]\n\n"},
    {"Responses",
     "event: response.created\ndata: {\"type\":\"response.created\"}\n\n"
     "event: response.in_progress\ndata: {\"type\":\"response.in_prog\"}\n\n"
     "event: response.output_item.added\ndata: {\"item\":{}}\n\n"
     "event: response.content_part.added\ndata: {\"part\":{}}\n\n",
     "event: response.output_text.delta\ndata: {\"delta\":\"a\"}\n\n",
     "event: response.output_text.done\ndata: {\"text\":\"a\"}\n\n"
     "event: response.completed\ndata: {\"response\":{}}\n\n"},
    {"ResponsesThatReason", "event: response.created\ndata: {}\n\n",
     "event: response.reasoning_text.delta\ndata: {\"delta\":\"a\"}\n\n",
     "event: response.reasoning_text.done\ndata: {}\n\n"},
    {"ResponsesThatCall", "event: response.created\ndata: {}\n\n",
     "event: response.function_call_arguments.delta\ndata: {}\n\n",
     "event: response.function_call_arguments.done\ndata: {}\n\n"},
    {"Messages",
     "event: message_start\ndata: {\"type\":\"message_start\"}\n\n"
     "event: content_block_start\ndata: {\"index\":0}\n\n"
     "event: ping\ndata: {\"type\":\"ping\"}\n\n",
     "event: content_block_delta\ndata: {\"delta\":{\"text\":\"a\"}}\n\n",
     "event: content_block_stop\ndata: {\"index\":0}\n\n"
     "event: message_delta\ndata: {\"usage\":{\"output_tokens\":1}}\n\n"
     "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"},
    {"Transcriptions", "",
     "data: {\"object\":\"transcription.chunk\",\"choices\":[{}]}\n\n",
     "data: [DONE]\n\n"},
    {"TokensOut", "", "data: {\"choices\":[{\"token_ids\":[7]}]}\n\n",
     "data: [DONE]\n\n"},
    {"Coheres", "event: message-start\ndata: {}\n\n",
     "event: content-delta\ndata: {\"delta\":{}}\n\n",
     "event: message-end\ndata: {\"delta\":{}}\n\ndata: [DONE]\n\n"},
    {"NamedAsTheUnnamed", "", "event: message\ndata: 1\n\n", ""},
    {"DataOfSeveralLines", "", "data: {\ndata: \"a\": 1\ndata: }\n\n", ""},
    {"ErrorOfResponses", "event: error\ndata: {\"type\":\"error\"}\n\n",
     "data: 1\n\n", ""},
    {"ErrorOfMessages",
     "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n", "data: 1\n\n",
     ""},
    {"ErrorOfChats", "data: {\"error\": {\"message\": \"no\"}}\n\n",
     "data: 1\n\n", "data: {\"type\":\"error\"}\n\ndata:{\"error\":1}\n\n"},
};

class StreamTest : public ::testing::TestWithParam<StreamCase> {};

TEST_P(StreamTest, FirstTokenIsTheFirstDelta) {
  const StreamCase& c = GetParam();
  AnswerMeter meter;
  meter.Feed(c.before);
  EXPECT_EQ(meter.token_events(), 0u);
  meter.Feed(c.first);
  EXPECT_EQ(meter.token_events(), 1u);
  meter.Feed(c.after);
  EXPECT_EQ(meter.token_events(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Endpoints, StreamTest, ::testing::ValuesIn(kStreams),
                         [](const auto& param) { return param.param.name; });

TEST(AnswerMeterTest, IsInsideAnEventUntilItsBlankLine) {
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

// vLLM puts the prompt's tokens after the usage if it is asked for them.
TEST(AnswerMeterTest, UsageMayBeFollowedByThePromptsTokens) {
  const std::string answer =
      "{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2},"
      "\"prompt_token_ids\":[" +
      std::string(5000, '1') + "]}";
  for (const size_t cut : {answer.size(), size_t{1}, size_t{3}, size_t{7}}) {
    AnswerMeter meter;
    for (size_t at = 0; at < answer.size(); at += cut) {
      meter.Feed(absl::string_view(answer).substr(at, cut));
    }
    ASSERT_TRUE(meter.usage().has_value()) << cut;
    EXPECT_EQ(meter.usage()->prompt_tokens, 5u);
    EXPECT_EQ(meter.usage()->completion_tokens, 2u);
  }
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

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/openai/client.h"
#include "tools/openai/target.h"

namespace fineserve::openai {
namespace {

constexpr char kStream[] =
    "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"
    ": a comment\n\n"
    "data: {\"choices\":[{\"text\":\" b\"}]}\r\n\r\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,"
    "\"completion_tokens\":5}}\n\n"
    "data: [DONE]\n\n";

TEST(StreamReaderTest, ReadsAStreamInAnyPieces) {
  const std::string stream = kStream;
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    StreamReader reader;
    for (size_t at = 0; at < stream.size(); at += piece) {
      reader.Feed(absl::string_view(stream).substr(at, piece));
    }
    ASSERT_TRUE(reader.done()) << piece;
    ASSERT_EQ(reader.events(), 2u) << piece;
    ASSERT_EQ(reader.output_tokens(), 5u) << piece;
    ASSERT_EQ(reader.prompt_tokens(), 7u) << piece;
    ASSERT_EQ(reader.error(), "") << piece;
  }
}

TEST(StreamReaderTest, WithoutUsageAnEventIsAToken) {
  StreamReader reader;
  reader.Feed("data: {\"choices\":[{}]}\n\ndata: {\"choices\":[{}]}\n\n");
  EXPECT_EQ(reader.output_tokens(), 2u);
  EXPECT_FALSE(reader.done());
}

TEST(StreamReaderTest, ErrorEventIsAnError) {
  StreamReader reader;
  reader.Feed("data: {\"error\": {\"message\": \"gone\", \"code\": 502}}\n\n");
  EXPECT_EQ(reader.error(), "gone");
}

TEST(StreamReaderTest, TextThatSpeaksOfErrorsIsNone) {
  StreamReader reader;
  reader.Feed("data: {\"choices\":[{\"text\":\"\\\"error\\\"\"}]}\n\n");
  reader.Feed("data: {\"choices\":[{\"text\":\"\",\"error\":1}]}\n\n");
  EXPECT_EQ(reader.error(), "");
  EXPECT_EQ(reader.events(), 2u);
}

TEST(StreamReaderTest, EndlessLineIsCutOff) {
  StreamReader reader;
  const std::string much(1 << 20, 'x');
  reader.Feed(much);
  reader.Feed(much);
  EXPECT_EQ(reader.error(), "a line is too long");
}

TEST(PromptTest, HasAsManyWordsAndDiffersBySeed) {
  const std::string a = Prompt(100, 1);
  EXPECT_EQ(std::count(a.begin(), a.end(), ' '), 99);
  EXPECT_EQ(a, Prompt(100, 1));
  EXPECT_NE(a, Prompt(100, 2));
  EXPECT_EQ(a.find("  "), std::string::npos);
}

TEST(PromptTest, BodyAsksForExactlyTheTokens) {
  const auto body = nlohmann::json::parse(Body("m\"x", 3, 9, 1, false));
  EXPECT_EQ(body["model"], "m\"x");
  EXPECT_EQ(body["max_tokens"], 9);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  const auto chat = nlohmann::json::parse(Body("m", 3, 9, 1, true));
  EXPECT_EQ(chat["messages"][0]["content"], body["prompt"]);
}

TEST(ParseUrlTest, HostAndPort) {
  const auto target = ParseUrl("http://127.0.0.1:8000/");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->host, "127.0.0.1");
  EXPECT_EQ(target->port, "8000");
  EXPECT_EQ(ParseUrl("http://example")->port, "80");
  for (const char* bad : {"https://a:1", "http://a:1/v1", "http://:1",
                          "http://a:0", "http://a:x", "a:1"}) {
    EXPECT_FALSE(ParseUrl(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace fineserve::openai

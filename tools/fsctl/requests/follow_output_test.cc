#include "tools/fsctl/requests/follow_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/fsctl/requests/proxy_stream.h"

namespace fineserve::fsctl {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json Waited() {
  return json::parse(R"({
    "time":"2023-11-14T22:13:20.123Z","id":"abc","trace":null,
    "client":"127.0.0.1:4711","method":"POST","path":"/v1/completions",
    "model":"chat","stream":true,"status":200,"ended":"answered","error":null,
    "engine":"a","gpu":"GPU-1","attempts":1,"decided_by":"fineserved",
    "waited_ms":30.0,"waited_for":"kv","ttft_ms":50.0,"total_ms":12345.0,
    "tokens_in":7,"tokens_out":9,"bytes_in":100,"bytes_out":200,
    "steps":[{"at_ms":0.0,"step":"arrived"},{"at_ms":2.0,"step":"asked"},
      {"at_ms":32.0,"step":"admitted","by":"fineserved","waited_for":"kv",
       "queued_ms":29.0,"engine":"a","gpu":"GPU-1"},
      {"at_ms":100.0,"step":"ended","how":"answered"}]})");
}

TEST(LifeOutputTest, FollowedRequestIsOneLine) {
  EXPECT_EQ(FollowLine(Waited(), false),
            "22:13:20.123Z chat             a                 200 answered   "
            "   30.0 ms kv        50.0 ms   12.35 s      7      9 abc\n");
}

TEST(LifeOutputTest, HeadingIsAboveItsColumns) {
  const std::string heading = FollowHeading(false);
  const std::string line = FollowLine(Waited(), false);
  EXPECT_EQ(heading.find("MODEL"), line.find("chat"));
  EXPECT_EQ(heading.find("FOR"), line.find("kv"));
  EXPECT_EQ(heading.find("ID"), line.find("abc"));
}

TEST(LifeOutputTest, TraceSaysWhyItWaitedAndWhereItRan) {
  const std::string text = TraceText(Waited(), false);
  EXPECT_THAT(text, HasSubstr("POST /v1/completions for model chat, from "
                              "127.0.0.1:4711 at 2023-11-14T22:13:20.123Z"));
  EXPECT_THAT(text, HasSubstr("     32.0 ms  admitted by fineserved to a on "
                              "GPU-1; queued 29.0 ms because too little KV "
                              "was free\n"));
  EXPECT_THAT(text,
              HasSubstr("answered, status 200; first byte after 50.0 ms"));
  EXPECT_THAT(text, Not(HasSubstr("trace ")));
}

TEST(LifeOutputTest, MissingOrWrongFieldIsADash) {
  for (const char* text : {"{}", R"({"time":1,"steps":3,"status":"x"})",
                           R"({"steps":[1,{"step":5,"at_ms":"y"}]})"}) {
    EXPECT_THAT(FollowLine(json::parse(text), false), HasSubstr("- "));
    EXPECT_THAT(TraceText(json::parse(text), false), HasSubstr("request -"));
  }
  EXPECT_EQ(FollowLine(json::parse("[]"), false), "");
}

TEST(LifeOutputTest, ProxyCannotSteerTheTerminal) {
  EXPECT_THAT(TraceText(json::parse(R"({"id":"\u001b[2J"})"), false),
              HasSubstr("request ?[2J"));
}

TEST(LifeOutputTest, MissedRequestsAreSaid) {
  EXPECT_EQ(FollowLine(json::parse(R"({"missed":3})"), false),
            "(3 more ended than could be followed)\n");
}

TEST(ProxyStreamTest, IdIsOneSegmentOfThePath) {
  EXPECT_EQ(PercentEncoded("a/b?c d%"), "a%2fb%3fc%20d%25");
}

TEST(ProxyStreamTest, AddressNeedsAHost) {
  EXPECT_TRUE(ProxyAt("127.0.0.1:8001").ok());
  EXPECT_FALSE(ProxyAt("127.0.0.1:8001/path").ok());
}

TEST(UsageOutputTest, EachKeyHasItsLine) {
  const json usages = json::parse(R"({"keys":[
    {"key":"alice","requests":12,"prompt_tokens":900,"output_tokens":100,
     "tokens_today":850,"tokens_per_day":1000,"under_way":2},
    {"key":"bob","requests":0,"prompt_tokens":0,"output_tokens":0,
     "tokens_today":0,"tokens_per_day":null,"under_way":0}]})");
  EXPECT_EQ(UsageText(usages, false),
            "KEY    REQUESTS  PROMPT  OUTPUT  TODAY  OF A DAY  UNDER WAY\n"
            "alice        12     900     100    850      1000          2\n"
            "bob           0       0       0      0         -          0\n");
  EXPECT_NE(UsageText(usages, true).find("\x1b[33m"), std::string::npos);
}

TEST(UsageOutputTest, StrangeAnswersShowDashes) {
  EXPECT_NE(
      UsageText(json::parse(R"({"keys":[1,{"key":2}]})"), false).find("-"),
      std::string::npos);
  for (const char* none : {"{}", "[]", R"({"keys":3})", R"({"keys":[]})"}) {
    EXPECT_EQ(UsageText(json::parse(none), false).substr(0, 15),
              "no key has a na")
        << none;
  }
}

}  // namespace

}  // namespace fineserve::fsctl

#include "daemon/fleet/door/message.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::apply {
namespace {

TEST(ApplyMessageTest, QuestionComesBackAsItWas) {
  Question q;
  q.kind = Question::Kind::kRestart;
  q.fleet_path = "/etc/fineserve/fleet.toml";
  q.digest = "00ff";
  q.engines = {"chat-a", "chat-b"};
  q.seconds = 2.5;
  q.stopped = {"chat-b"};
  const auto read = DecodeQuestion(Encode(q));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->kind, q.kind);
  EXPECT_EQ(read->fleet_path, q.fleet_path);
  EXPECT_EQ(read->digest, q.digest);
  EXPECT_EQ(read->engines, q.engines);
  EXPECT_EQ(read->seconds, q.seconds);
  EXPECT_EQ(read->stopped, q.stopped);
}

TEST(ApplyMessageTest, AnswerComesBackAsItWas) {
  Answer a;
  a.error = "no such file";
  a.process = "fsctl up";
  a.pid = 4711;
  a.gpu = "GPU-1";
  a.fleet_path = "/fleet.toml";
  a.fleet = {{"engine a", {{"url", "http://127.0.0.1:1"}}}, {"proxy", {}}};
  a.notes = {"restart it to change listen"};
  a.engines = {{"a", "serving", 12, 3, 4.5, "code 1", 6}};
  a.daemons = {{"GPU-1", true}, {"", false}};
  a.away_s = {{"", 2.5}};
  a.unscheduled = 7;
  a.runs_s = 61;
  a.full_disk_s = 0.25;
  a.admin = "127.0.0.1:8001";
  a.certificate_s = -3;
  const auto read = DecodeAnswer(Encode(a));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->error, a.error);
  EXPECT_EQ(read->process, a.process);
  EXPECT_EQ(read->pid, a.pid);
  EXPECT_NE(read->version, "");
  EXPECT_EQ(read->gpu, a.gpu);
  EXPECT_EQ(read->fleet_path, a.fleet_path);
  EXPECT_EQ(read->fleet, a.fleet);
  EXPECT_EQ(read->notes, a.notes);
  EXPECT_EQ(read->engines, a.engines);
  EXPECT_EQ(read->daemons, a.daemons);
  EXPECT_EQ(read->away_s, a.away_s);
  EXPECT_EQ(read->unscheduled, a.unscheduled);
  EXPECT_EQ(read->runs_s, a.runs_s);
  EXPECT_EQ(read->full_disk_s, a.full_disk_s);
  EXPECT_EQ(read->admin, a.admin);
  EXPECT_EQ(read->certificate_s, a.certificate_s);
}

TEST(ApplyMessageTest, BytesThatAreNoTextDoNotBreakTheAnswer) {
  Answer a;
  a.process = "fineserved";
  a.fleet_path = "/\xff\xfe/fleet.toml";
  EXPECT_TRUE(DecodeAnswer(Encode(a)).ok());
}

TEST(ApplyMessageTest, OtherTextIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("7"),
        std::string("{}"), std::string("{\"question\": 7}"),
        std::string("{\"question\": \"explode\"}"), std::string(100'000, '['),
        "{\"question\": \"state\", \"x\": " + std::string(50, '[') +
            std::string(50, ']') + "}",
        std::string("\0\0\0\0", 4)}) {
    EXPECT_FALSE(DecodeQuestion(text).ok()) << text.substr(0, 60);
    EXPECT_FALSE(DecodeAnswer(text).ok()) << text.substr(0, 60);
  }
}

TEST(ApplyMessageTest, ValuesOfAnotherTypeCountAsMissing) {
  const auto q = DecodeQuestion(
      "{\"question\":\"take\",\"fleet_path\":[],\"digest\":1,"
      "\"engines\":[1,\"a\",{}],\"seconds\":-5}");
  ASSERT_TRUE(q.ok()) << q.status();
  EXPECT_EQ(q->fleet_path, "");
  EXPECT_EQ(q->digest, "");
  EXPECT_EQ(q->engines, std::vector<std::string>{"a"});
  EXPECT_EQ(q->seconds, 0);
  const auto a = DecodeAnswer(
      "{\"process\":\"x\",\"pid\":-1,\"fleet\":{\"engine a\":[],\"proxy\":"
      "{\"listen\":1}},\"engines\":[7,{\"pid\":\"x\"}],\"daemons\":{\"g\":1}}");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->pid, 0);
  EXPECT_EQ(a->fleet.size(), 1u);
  EXPECT_EQ(a->engines.size(), 1u);
  EXPECT_TRUE(a->daemons.empty());
}

}  // namespace
}  // namespace fineserve::apply

#include "daemon/proxy/record/life.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fineserve::proxy {
namespace {

using nlohmann::json;
using testing::ElementsAre;

constexpr uint64_t kMs = 1'000'000;

// Returns a request that waited 30 ms for KV and was answered by engine a.
Life Answered() {
  Life life;
  life.id = "abc";
  life.client = "127.0.0.1:4711";
  life.method = "POST";
  life.path = "/v1/completions";
  life.model = "chat";
  life.stream = true;
  life.key = "alice";
  life.status = 200;
  life.ending = Ending::kAnswered;
  life.arrived_unix_ns = 1'700'000'000'123'000'000;
  life.arrived_ns = 1000 * kMs;
  life.read_ns = 1001 * kMs;
  life.first_ns = 1050 * kMs;
  life.last_ns = 1090 * kMs;
  life.ended_ns = 1100 * kMs;
  life.tokens_in = 7;
  life.tokens_out = 9;
  life.bytes_in = 100;
  life.bytes_out = 200;
  LifeAttempt& attempt = life.NextAttempt();
  attempt.asked_ns = 1002 * kMs;
  attempt.decided_ns = 1032 * kMs;
  attempt.waited_us = 29'000;
  attempt.waited_for = WaitedFor::kKv;
  attempt.decided_by = DecidedBy::kDaemon;
  attempt.admitted = true;
  attempt.engine = "a";
  attempt.gpu = "GPU-1";
  attempt.sent_ns = 1033 * kMs;
  attempt.head_ns = 1049 * kMs;
  attempt.ended_ns = 1090 * kMs;
  return life;
}

TEST(LifeJsonTest, LineSaysWhereItRanAndWhyItWaited) {
  const std::string line = LifeLine(Answered(), 0);
  EXPECT_EQ(line.find('\n'), line.npos);
  EXPECT_EQ(json::parse(line), json::parse(R"({
    "time":"2023-11-14T22:13:20.123Z","id":"abc","trace":null,
    "client":"127.0.0.1:4711","key":"alice","method":"POST",
    "path":"/v1/completions",
    "model":"chat","fell_back_from":null,"stream":true,"status":200,"ended":"answered","error":null,
    "engine":"a","gpu":"GPU-1","attempts":1,"decided_by":"fineserved",
    "waited_ms":30.0,"waited_for":"kv","ttft_ms":50.0,"total_ms":100.0,
    "tokens_in":7,"tokens_out":9,"bytes_in":100,"bytes_out":200})"));
}

TEST(LifeJsonTest, WaitIsSummedOverAttemptsAndTheLongestGivesTheReason) {
  Life life = Answered();
  LifeAttempt& second = life.NextAttempt();
  second.asked_ns = 1060 * kMs;
  second.decided_ns = 1065 * kMs;
  second.waited_for = WaitedFor::kBatch;
  const json line = json::parse(LifeLine(life, 0));
  EXPECT_EQ(line.at("waited_ms"), 35.0);
  EXPECT_EQ(line.at("waited_for"), "kv");
  EXPECT_EQ(line.at("attempts"), 2);
}

TEST(LifeJsonTest, StageThatHasNotEndedLastsUntilNow) {
  Life life = Answered();
  life.ending = Ending::kNotYet;
  life.ended_ns = 0;
  life.first_ns = life.last_ns = 0;
  life.attempts[0].decided_ns = life.attempts[0].sent_ns = 0;
  const json line = json::parse(LifeLine(life, 1500 * kMs));
  EXPECT_EQ(line.at("ended"), "not yet");
  EXPECT_EQ(line.at("total_ms"), 500.0);
  EXPECT_EQ(line.at("waited_ms"), 498.0);
  EXPECT_EQ(line.at("ttft_ms"), nullptr);
}

TEST(LifeJsonTest, StepsAreInTheOrderInWhichTheyHappened) {
  std::vector<std::string> steps;
  const json life = json::parse(LifeWithSteps(Answered(), 0));
  for (const json& step : life.at("steps")) {
    steps.push_back(step.at("step"));
  }
  EXPECT_THAT(
      steps, ElementsAre("arrived", "read", "asked", "admitted", "sent",
                         "engine answers", "first byte", "last byte", "ended"));
  EXPECT_EQ(life.at("steps").at(3),
            json::parse(R"({"at_ms":32.0,"step":"admitted","by":"fineserved",
                "waited_for":"kv","queued_ms":29.0,"engine":"a",
                "gpu":"GPU-1"})"));
}

TEST(LifeJsonTest, ClientsBytesCannotBreakTheLine) {
  Life life;
  life.id = "a\"b\\c";
  life.path = std::string("/x\n\xff\x00y", 6);
  const json line = json::parse(LifeLine(life, 0));
  EXPECT_EQ(line.at("id"), "a\"b\\c");
  EXPECT_EQ(line.at("path"), "/x???y");
}

}  // namespace
}  // namespace fineserve::proxy

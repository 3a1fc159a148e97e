#include "daemon/proxy/trace/otlp_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace fineserve::proxy {
namespace {

using nlohmann::json;

constexpr uint64_t kMs = 1'000'000;

std::shared_ptr<Life> TracedCompletion() {
  auto life = std::make_shared<Life>();
  life->id = "abc";
  life->method = "POST";
  life->path = "/v1/completions";
  life->status = 200;
  life->ending = Ending::kAnswered;
  life->arrived_unix_ns = 5'000'000 * kMs;
  life->arrived_ns = 1000 * kMs;
  life->ended_ns = 1100 * kMs;
  life->tokens_out = 9;
  life->trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
  life->parent_span_id = "00f067aa0ba902b7";
  life->span_id = "1111111111111111";
  life->sampled = true;
  LifeAttempt& attempt = life->NextAttempt();
  attempt.asked_ns = 1002 * kMs;
  attempt.decided_ns = 1032 * kMs;
  attempt.waited_us = 20'000;
  attempt.waited_for = WaitedFor::kKv;
  attempt.engine = "a";
  attempt.sent_ns = 1033 * kMs;
  attempt.ended_ns = 1090 * kMs;
  attempt.span_id = "2222222222222222";
  return life;
}

std::map<std::string, json> SpansByName(const std::shared_ptr<Life>& life) {
  RandomHex random;
  const OtlpBatch batch = OtlpJson({life}, &random);
  std::map<std::string, json> spans;
  const json all = json::parse(batch.body);
  for (const json& span : all["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
    EXPECT_EQ(span["traceId"], life->trace_id);
    spans[span["name"]] = span;
  }
  EXPECT_EQ(spans.size(), batch.spans);
  return spans;
}

std::string AttributeOf(const json& span, const std::string& key) {
  for (const json& attribute : span["attributes"]) {
    if (attribute["key"] == key) return attribute["value"].begin().value();
  }
  return "";
}

TEST(OtlpJsonTest, EachSpanHasItsParent) {
  auto spans = SpansByName(TracedCompletion());
  ASSERT_EQ(spans.size(), 4u);
  const json request = spans["POST /v1/completions"];
  EXPECT_EQ(request["spanId"], "1111111111111111");
  EXPECT_EQ(request["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ(spans["deciding"]["parentSpanId"], "1111111111111111");
  EXPECT_EQ(spans["waiting"]["parentSpanId"], spans["deciding"]["spanId"]);
  EXPECT_EQ(spans["relaying"]["parentSpanId"], "1111111111111111");
  EXPECT_EQ(spans["relaying"]["spanId"], "2222222222222222");
}

TEST(OtlpJsonTest, TimesAreOfTheWallClockAndWaitingEndsWithTheVerdict) {
  auto spans = SpansByName(TracedCompletion());
  const auto at = [](uint64_t ms) {
    return std::to_string((5'000'000 + ms) * kMs);
  };
  const json& request = spans["POST /v1/completions"];
  EXPECT_EQ(request["startTimeUnixNano"], at(0));
  EXPECT_EQ(request["endTimeUnixNano"], at(100));
  EXPECT_EQ(spans["deciding"]["startTimeUnixNano"], at(2));
  EXPECT_EQ(spans["waiting"]["startTimeUnixNano"], at(12));
  EXPECT_EQ(spans["waiting"]["endTimeUnixNano"], at(32));
  EXPECT_EQ(spans["relaying"]["endTimeUnixNano"], at(90));
}

TEST(OtlpJsonTest, AttributesSayWhatWasWaitedForAndWhereItRan) {
  auto spans = SpansByName(TracedCompletion());
  EXPECT_EQ(AttributeOf(spans["waiting"], "fineserve.waited_for"), "kv");
  EXPECT_EQ(AttributeOf(spans["relaying"], "fineserve.engine"), "a");
  const json& request = spans["POST /v1/completions"];
  EXPECT_EQ(AttributeOf(request, "fineserve.request_id"), "abc");
  EXPECT_EQ(AttributeOf(request, "gen_ai.usage.output_tokens"), "9");
}

TEST(OtlpJsonTest, RequestThatDidNotWaitHasNoSpanForIt) {
  auto life = TracedCompletion();
  life->attempts[0].waited_for = WaitedFor::kNothing;
  EXPECT_EQ(SpansByName(life).count("waiting"), 0u);
}

TEST(OtlpJsonTest, BothAttemptsAreThere) {
  auto life = TracedCompletion();
  life->attempts[0].failed = true;
  life->NextAttempt() = life->attempts[0];
  life->attempt().span_id = "3333333333333333";
  RandomHex random;
  const json all = json::parse(OtlpJson({life}, &random).body);
  std::set<std::string> ids;
  for (const json& span : all["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
    ids.insert(std::string(span["spanId"]));
  }
  EXPECT_EQ(ids.size(), 7u);
  EXPECT_EQ(ids.count("3333333333333333"), 1u);
}

}  // namespace
}  // namespace fineserve::proxy

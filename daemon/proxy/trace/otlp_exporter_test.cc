#include "daemon/proxy/trace/otlp_exporter.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/driver/descriptor.h"

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

using std::chrono::milliseconds;

constexpr OtlpExporter::Patience kShort = {milliseconds(1), milliseconds(2000),
                                           milliseconds(1)};

std::shared_ptr<const Life> TracedGet() {
  auto life = std::make_shared<Life>();
  life->method = "GET";
  life->path = "/";
  life->trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
  life->span_id = "1111111111111111";
  return life;
}

template <typename Done>
void Await(const Done& done) {
  for (int i = 0; i < 4000; ++i) {
    if (done()) return;
    std::this_thread::sleep_for(milliseconds(5));
  }
  FAIL() << "not within 20 s";
}

// Takes one POST after the other; answers each with the next of `statuses`, and
// with 200 once they are used up.
class Collector {
 public:
  explicit Collector(std::vector<int> statuses = {})
      : statuses_(std::move(statuses)),
        socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(at);
    bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), bytes);
    listen(socket_.get(), 8);
    getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&at), &bytes);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Collector() {
    shutdown(socket_.get(), SHUT_RDWR);  // which ends accept
    thread_.join();
  }

  OtlpEndpoint endpoint() const { return {"127.0.0.1", port_, "/v1/traces"}; }
  std::vector<std::string> posts() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return posts_;
  }

 private:
  void Run() {
    for (size_t i = 0;; ++i) {
      const driver::Descriptor peer(accept(socket_.get(), nullptr, nullptr));
      if (!peer.valid()) return;
      const std::string post = Read(peer.get());
      const int status = i < statuses_.size() ? statuses_[i] : 200;
      const std::string answer = "HTTP/1.1 " + std::to_string(status) +
                                 " X\r\ncontent-length: 2\r\n\r\n{}";
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        posts_.push_back(post);
      }
      send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }
  // Until its JSON ends.
  static std::string Read(int fd) {
    std::string text;
    char bytes[4096];
    while (text.size() < 4 || text.compare(text.size() - 4, 4, "]}]}") != 0) {
      const ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
      if (n <= 0) break;
      text.append(bytes, static_cast<size_t>(n));
    }
    return text;
  }

  const std::vector<int> statuses_;
  const driver::Descriptor socket_;
  uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> posts_;
  std::thread thread_;
};

TEST(OtlpExporterTest, PostsSpansAsJson) {
  const Collector collector;
  {
    OtlpExporter exporter(collector.endpoint(), kShort, 10);
    exporter.Send(TracedGet());
    Await([&] { return exporter.counts().spans == 1; });
  }
  ASSERT_EQ(collector.posts().size(), 1u);
  const std::string post = collector.posts()[0];
  EXPECT_EQ(post.find("POST /v1/traces HTTP/1.1\r\n"), 0u);
  EXPECT_NE(post.find("Content-Type: application/json\r\n"), post.npos);
  const auto body =
      nlohmann::json::parse(post.substr(post.find("\r\n\r\n") + 4));
  EXPECT_EQ(body["resourceSpans"][0]["scopeSpans"][0]["spans"].size(), 1u);
}

TEST(OtlpExporterTest, QueuedSpansAreSentAtTheEnd) {
  const Collector collector;
  OtlpExporter::Patience patience = kShort;
  patience.gather = milliseconds(60'000);
  { OtlpExporter(collector.endpoint(), patience, 10).Send(TracedGet()); }
  EXPECT_EQ(collector.posts().size(), 1u);
}

TEST(OtlpExporterTest, BusyCollectorIsAskedAgain) {
  const Collector collector({503, 429});
  OtlpExporter exporter(collector.endpoint(), kShort, 10);
  exporter.Send(TracedGet());
  Await([&] { return exporter.counts().spans == 1; });
  EXPECT_EQ(exporter.counts().failures, 2u);
  EXPECT_EQ(exporter.counts().spans_given_up, 0u);
}

TEST(OtlpExporterTest, RefusedSpansAreGivenUpAtOnce) {
  const Collector collector({400});
  OtlpExporter exporter(collector.endpoint(), kShort, 10);
  exporter.Send(TracedGet());
  Await([&] { return exporter.counts().spans_given_up == 1; });
  EXPECT_EQ(exporter.counts().failures, 1u);
}

TEST(OtlpExporterTest, CollectorThatIsAwayCostsSpansAndNoTime) {
  OtlpEndpoint closed;
  { closed = Collector().endpoint(); }
  OtlpExporter exporter(closed, kShort, 10);
  exporter.Send(TracedGet());
  Await([&] { return exporter.counts().spans_given_up == 1; });
  EXPECT_EQ(exporter.counts().failures,
            static_cast<uint64_t>(OtlpExporter::kTries));
}

TEST(OtlpExporterTest, SpanThatDoesNotFitIsDropped) {
  OtlpExporter::Patience patience = kShort;
  patience.gather = milliseconds(60'000);
  const Collector collector;
  OtlpExporter exporter(collector.endpoint(), patience, 2);
  for (int i = 0; i < 5; ++i) exporter.Send(TracedGet());
  EXPECT_EQ(exporter.counts().requests_dropped, 3u);
}

TEST(OtlpEndpointTest, PortAndPathHaveDefaults) {
  const auto plain = ParseOtlpEndpoint("http://collector");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->host, "collector");
  EXPECT_EQ(plain->port, 4318);
  EXPECT_EQ(plain->target, "/v1/traces");
  const auto whole = ParseOtlpEndpoint("http://[::1]:9/otlp/v1/traces");
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->host, "::1");
  EXPECT_EQ(whole->port, 9);
  EXPECT_EQ(whole->target, "/otlp/v1/traces");
  EXPECT_EQ(ParseOtlpEndpoint("http://[::1]/")->port, 4318);
}

TEST(OtlpEndpointTest, OtherSchemesAndBadPortsAreRefused) {
  for (const char* url : {"https://c:4318", "collector:4318", "http://",
                          "http://c:0", "http://c:99999", "http://:4318"}) {
    EXPECT_FALSE(ParseOtlpEndpoint(url).ok()) << url;
  }
}

}  // namespace

}  // namespace fineserve::proxy

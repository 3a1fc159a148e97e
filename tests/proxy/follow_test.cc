// Ways to follow requests: access log, /requests, traces.

#include <gmock/gmock.h>
#include <signal.h>
#include <string.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/proxy/collector.h"
#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

using nlohmann::json;
using process::Eventually;
using testing::HasSubstr;
using testing::Not;

constexpr char kUsage[] =
    R"({"usage":{"prompt_tokens":3,"completion_tokens":5}})";

class FollowTest : public ProxyTest {
 protected:
  std::string LogPath() const { return folder_ + "/access.log"; }

  // Sends a chat that an engine answers; returns what the engine received.
  Peer::Message Chat(const std::string& fields = "") {
    Peer client = Client(Post("/v1/chat/completions", kChat, fields));
    Peer engine = AcceptChat();
    Peer::Message asked = engine.ReceiveMessage();
    engine.Send(Plain(kUsage));
    EXPECT_EQ(client.ReceiveMessage().body, kUsage);
    return asked;
  }
  // Waits for so many lines.
  std::vector<json> Lines(size_t n, const std::string& path) {
    std::vector<json> lines;
    EXPECT_TRUE(Eventually([&] {
      lines.clear();
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        if (!file.eof()) lines.push_back(json::parse(line));
      }
      return lines.size() >= n;
    })) << lines.size();
    return lines;
  }
  json Recent(const std::string& rest) {
    return json::parse(Get("/requests" + rest, /*admin=*/true).body);
  }
};

TEST_F(FollowTest, AccessLogSaysWhichClientWhereAndHow) {
  Start("", {"--access-log", LogPath()});
  Chat("x-request-id: mine\r\n");
  const json line = Lines(1, LogPath())[0];
  EXPECT_EQ(line.at("id"), "mine");
  EXPECT_THAT(line.at("client"), testing::StartsWith("127.0.0.1:"));
  EXPECT_EQ(line.at("method"), "POST");
  EXPECT_EQ(line.at("path"), "/v1/chat/completions");
  EXPECT_EQ(line.at("model"), "chat");
  EXPECT_EQ(line.at("status"), 200);
  EXPECT_EQ(line.at("ended"), "answered");
  EXPECT_THAT(line.at("engine"), testing::AnyOf("a", "b"));
  EXPECT_EQ(line.at("decided_by"), "proxy");
  EXPECT_EQ(line.at("tokens_in"), 3);
  EXPECT_EQ(line.at("tokens_out"), 5);
  EXPECT_EQ(line.at("bytes_in"), strlen(kChat));
  EXPECT_EQ(line.at("bytes_out"), strlen(kUsage));
  EXPECT_TRUE(line.at("ttft_ms").is_number());
  EXPECT_EQ(Metric("fineserve_access_log_lines_total{outcome=\"written\"}"), 1);
}

TEST_F(FollowTest, EachEndingHasItsWord) {
  Start("", {"--access-log", LogPath()});
  Get("/v1/models");
  Get("/nowhere?key=secret");
  {
    Peer nonsense = Client("nonsense\r\n\r\n");
    nonsense.ReceiveMessage();
  }
  {
    Stream stream = Begin();
    stream.client.Close();
    EXPECT_TRUE(stream.engine.IsClosed());
  }
  {
    Stream stream = Begin();
    stream.engine.Close();
    stream.client.ReceiveUntil(proxy_tests::kLastChunk);
  }
  std::vector<std::string> endings;
  for (const json& line : Lines(5, LogPath())) {
    EXPECT_THAT(line.dump(), Not(HasSubstr("secret")));
    endings.push_back(std::string(line.at("ended")) + " " +
                      line.at("status").dump());
  }
  EXPECT_THAT(endings,
              testing::ElementsAre("answered 200", "refused 404", "refused 400",
                                   "client left 499", "engine died 200"));
}

TEST_F(FollowTest, ProbesAndTheAdminPortAreNotLogged) {
  Start("", {"--access-log", LogPath()});
  Get("/health");
  Get("/ready");
  Get("/metrics", /*admin=*/true);
  Get("/v1/models");
  EXPECT_EQ(Lines(1, LogPath())[0].at("path"), "/v1/models");
}

TEST_F(FollowTest, LogIsOpenedAgainOnSigusr1) {
  Start("", {"--access-log", LogPath()});
  Get("/v1/models");
  Lines(1, LogPath());
  std::filesystem::rename(LogPath(), LogPath() + ".1");
  proxy_->Signal(SIGUSR1);
  EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(LogPath()); }));
  Get("/v1/models");
  EXPECT_EQ(Lines(1, LogPath()).size(), 1u);
  EXPECT_EQ(Lines(1, LogPath() + ".1").size(), 1u);
}

TEST_F(FollowTest, Sigusr1WithoutALogIsIgnored) {
  Start();
  proxy_->Signal(SIGUSR1);
  EXPECT_EQ(Get("/v1/models").status(), 200);
}

TEST_F(FollowTest, FullDiskIsCountedAndRequestsAreServed) {
  Start("", {"--access-log", "/dev/full"});
  Chat();
  EXPECT_TRUE(Eventually([&] {
    return Metric("fineserve_access_log_lines_total{outcome=\"failed\"}") == 1;
  }));
  Chat();
}

TEST_F(FollowTest, RequestIsShownWhileItRunsAndAfterIt) {
  Start();
  Peer client =
      Client(Post("/v1/chat/completions", kChat, "x-request-id: a/b\r\n"));
  Peer engine = AcceptChat();
  engine.ReceiveMessage();
  EXPECT_EQ(Recent("").at("under_way"), 1);
  EXPECT_EQ(Recent("/a%2Fb").at("ended"), "not yet");
  engine.Send(Plain(kUsage));
  client.ReceiveMessage();
  ASSERT_TRUE(Eventually([&] { return Recent("").at("under_way") == 0; }));
  const json life = Recent("/a%2Fb");
  EXPECT_EQ(life.at("ended"), "answered");
  std::vector<std::string> steps;
  for (const json& step : life.at("steps")) steps.push_back(step.at("step"));
  EXPECT_THAT(steps, testing::ElementsAre("arrived", "read", "asked",
                                          "admitted", "sent", "engine answers",
                                          "first byte", "last byte", "ended"));
}

TEST_F(FollowTest, SecondAttemptIsInTheRecord) {
  a_.Close();
  Start();
  for (int i = 0; i < 2; ++i) {  // one of them goes to a first
    Peer client = Client(Post("/v1/chat/completions", kChat));
    Peer engine = b_.Accept();
    engine.Answer(Plain(kUsage));
    client.ReceiveMessage();
  }
  ASSERT_TRUE(Eventually([&] { return Recent("").at("ended") == 2; }));
  std::multiset<int> attempts;
  const json recent = Recent("");
  for (const json& request : recent.at("requests")) {
    attempts.insert(int(request.at("attempts")));
    EXPECT_EQ(request.at("engine"), "b");
  }
  EXPECT_EQ(attempts.count(2), 1u);
}

TEST_F(FollowTest, OnlyTheNewestAreKept) {
  Start("", {"--recent-requests", "2"});
  for (int i = 0; i < 3; ++i) Get("/v1/models");
  EXPECT_EQ(Recent("").at("ended"), 3);
  EXPECT_EQ(Recent("").at("requests").size(), 2u);
}

TEST_F(FollowTest, NothingIsKeptIfSoConfigured) {
  Start("", {"--recent-requests", "0"});
  Chat();
  for (const char* path : {"/requests", "/requests/follow", "/requests/x"}) {
    EXPECT_EQ(Get(path, /*admin=*/true).status(), 404) << path;
  }
}

TEST_F(FollowTest, ClientsPortShowsNoRequests) {
  Start();
  EXPECT_EQ(Get("/requests").status(), 404);
}

TEST_F(FollowTest, FollowerHearsOfEachThatEnds) {
  Start();
  Get("/v1/models");  // before
  Peer follower = Admin();
  follower.Send("GET /requests/follow?model=chat HTTP/1.1\r\nHost: x\r\n\r\n");
  follower.ReceiveUntil("\r\n\r\n");
  Get("/v1/models");  // of no model
  Chat("x-request-id: one\r\n");
  EXPECT_EQ(json::parse(follower.ReceiveChunk()).at("id"), "one");
  Chat("x-request-id: two\r\n");
  EXPECT_EQ(json::parse(follower.ReceiveChunk()).at("id"), "two");
}

TEST_F(FollowTest, FollowerThatLeavesIsForgotten) {
  Start();
  for (int i = 0; i < 20; ++i) {  // more than may follow at a time
    Peer follower = Admin();
    follower.Send("GET /requests/follow HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(follower.ReceiveUntil("\r\n\r\n"), HasSubstr(" 200 "));
    follower.Close();
    ASSERT_TRUE(
        Eventually([&] { return Metric("fineserve_connections") == 1; }));
  }
}

TEST_F(FollowTest, WithoutACollectorTraceFieldsGoOnAsTheyAre) {
  Start();
  const Peer::Message asked = Chat("traceparent: odd\r\ntracestate: a=b\r\n");
  EXPECT_EQ(asked.Field("traceparent"), "odd");
  EXPECT_EQ(asked.Field("tracestate"), "a=b");
}

TEST_F(FollowTest, TraceGoesFromTheClientThroughTheProxyToTheEngine) {
  Collector collector;
  Start("", {"--otlp-endpoint", collector.url()});
  const Peer::Message asked = Chat(
      "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
      "tracestate: vendor=1\r\nx-request-id: mine\r\n");
  EXPECT_EQ(asked.Field("tracestate"), "vendor=1");
  auto spans = collector.AwaitSpans(3);
  ASSERT_EQ(spans.size(), 3u);
  const json request = spans["POST /v1/chat/completions"];
  EXPECT_EQ(request["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ(spans["deciding"]["parentSpanId"], request["spanId"]);
  EXPECT_EQ(spans["relaying"]["parentSpanId"], request["spanId"]);
  EXPECT_EQ(asked.Field("traceparent"),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-" +
                std::string(spans["relaying"]["spanId"]) + "-01");
  EXPECT_TRUE(Eventually(
      [&] { return Metric("fineserve_spans_total{outcome=\"sent\"}") == 3; }));
}

TEST_F(FollowTest, WrongTraceparentBeginsATraceWithoutTheirState) {
  Collector collector;
  Start("", {"--otlp-endpoint", collector.url(), "--trace-sample", "0"});
  const Peer::Message asked = Chat("traceparent: odd\r\ntracestate: a=b\r\n");
  const std::string sent = asked.Field("traceparent");
  EXPECT_EQ(sent.size(), 55u);
  EXPECT_THAT(sent, testing::EndsWith("-00")) << "not sampled";
  EXPECT_EQ(asked.Field("tracestate"), "");
}

TEST_F(FollowTest, CollectorThatIsAwayCostsNoRequest) {
  std::string url;
  { url = Collector().url(); }
  Start("", {"--otlp-endpoint", url});
  Chat();
  EXPECT_TRUE(Eventually(
      [&] { return Metric("fineserve_span_posts_failed_total") >= 1; }));
  Chat();
}

TEST_F(FollowTest, WrongFlagIsRefusedWithTheFix) {
  WriteFleet("");
  const auto run = [&](const std::vector<std::string>& flags) {
    return stage::RunToEnd(
        process::With({Program(), "--fleet", folder_ + "/fleet.toml"}, flags),
        {});
  };
  const auto https = run({"--otlp-endpoint", "https://c:4318"});
  EXPECT_EQ(https.code, 2);
  EXPECT_THAT(https.err, HasSubstr("--otlp-endpoint: "));
  const auto file = run({"--access-log", folder_ + "/no/log"});
  EXPECT_EQ(file.code, 2);
  EXPECT_THAT(file.err, HasSubstr("--access-log: cannot write"));
  EXPECT_EQ(run({"--trace-sample", "2"}).code, 2);
}

}  // namespace
}  // namespace fineserve::proxy_tests

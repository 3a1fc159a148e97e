// Tests the load generator with a scripted server: how it counts whole,
// refused, broken and cut-off answers.

#include "tools/lab/loadgen/run.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tools/lab/loadgen/report.h"

namespace fineserve::loadgen {
namespace {

using workload::End;

std::string Answer(const std::string& status, const std::string& body,
                   const std::string& fields = "") {
  return "HTTP/1.1 " + status +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         fields + "\r\n" + body;
}

std::string Chunk(const std::string& text) {
  char size[16];
  snprintf(size, sizeof(size), "%zx\r\n", text.size());
  return size + text + "\r\n";
}

constexpr char kStreamHead[] =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr char kToken[] = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
constexpr char kUsage[] =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,"
    "\"completion_tokens\":4}}\n\n";

// A server that answers according to the model's name. Each connection has a
// separate thread.
class ScriptedServer {
 public:
  ScriptedServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(
        bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t bytes = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~ScriptedServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& t : connections_) t.join();
    close(listener_);
  }
  std::string port() const { return std::to_string(port_); }
  int connections() const { return count_; }
  std::string last_head() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_head_;
  }

 private:
  void Accept() {
    int s;
    while ((s = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0) {
      ++count_;
      connections_.emplace_back([this, s] { Serve(s); });
    }
  }

  // Reads one request's body; returns "" at the end of the connection.
  std::string Read(int s) {
    std::string bytes;
    char piece[4096];
    size_t end = std::string::npos, length = 0;
    while (end == std::string::npos || bytes.size() < end + 4 + length) {
      const ssize_t got = recv(s, piece, sizeof(piece), 0);
      if (got <= 0) return "";
      bytes.append(piece, static_cast<size_t>(got));
      end = bytes.find("\r\n\r\n");
      const size_t field = bytes.find("Content-Length: ");
      if (end != std::string::npos && field != std::string::npos) {
        length = std::stoul(bytes.substr(field + 16));
      }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    last_head_ = bytes.substr(0, end);
    return bytes.substr(end + 4);
  }

  void Serve(int s) {
    std::string body;
    bool more = true;
    while (more && !(body = Read(s)).empty()) {
      const std::string model = nlohmann::json::parse(body)["model"];
      std::string answer = kStreamHead;
      if (model == "refused") {
        answer = Answer("429 Too Many Requests", "{\"error\":{}}");
      } else if (model == "missing") {
        answer = Answer("404 Not Found", "{\"error\":{}}");
      } else if (model == "cut") {
        answer += Chunk(kToken);
        more = false;
      } else if (model == "undone") {
        answer += Chunk(kToken) + "0\r\n\r\n";
      } else if (model == "broken") {
        answer += Chunk(std::string(kToken) +
                        "data: {\"error\":{\"message\":\"engine died\"}}\n\n") +
                  "0\r\n\r\n";
      } else {
        answer += Chunk(kToken) +
                  Chunk(std::string(kToken) + kUsage + "data: [DONE]\n\n") +
                  "0\r\n\r\n";
        more = model != "once";  // closes without having announced it
      }
      send(s, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
    close(s);
  }

  const int listener_;
  uint16_t port_ = 0;
  std::atomic<int> count_{0};
  std::mutex mutex_;
  std::string last_head_;  // guarded by mutex_
  std::thread acceptor_;
  std::vector<std::thread> connections_;
};

class RunTest : public ::testing::Test {
 protected:
  RunTest() {
    options_.target = {"127.0.0.1", server_.port(), "/v1/completions", "k1"};
    options_.progress = false;
    options_.timeout_s = 120;
    options_.slo = {120, 0};
  }
  // Sends one request for each name, all at once or `gap_s` apart.
  RunResult Send(const std::vector<std::string>& models, double gap_s = 0) {
    trace_ = {};
    trace_.models = models;
    for (uint32_t m = 0; m < models.size(); ++m) {
      trace_.arrivals.push_back({m * gap_s, m, {2, 9}});
    }
    return loadgen::Run(options_, trace_);
  }

  ScriptedServer server_;
  Options options_;
  workload::Trace trace_;
};

TEST_F(RunTest, WholeAnswerIsDoneWithTheEnginesCount) {
  const RunResult r = Send({"whole"});
  ASSERT_EQ(r.outcomes.size(), 1u);
  const workload::Outcome& o = r.outcomes[0];
  EXPECT_EQ(o.end, End::kDone);
  EXPECT_EQ(o.lengths.output, 4u);
  EXPECT_GT(o.first_token_s, 0);
  EXPECT_LE(o.first_token_s, o.end_s);
  EXPECT_TRUE(o.attained());
  EXPECT_TRUE(r.errors.empty());
  EXPECT_NE(server_.last_head().find("Bearer k1"), std::string::npos);
}

TEST_F(RunTest, IncompleteAnswerIsCountedApart) {
  const RunResult r = Send({"refused", "missing", "cut", "undone", "broken"});
  ASSERT_EQ(r.outcomes.size(), 5u);
  EXPECT_EQ(r.outcomes[0].end, End::kDropped);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(r.outcomes[i].end, End::kFailed) << trace_.models[i];
    EXPECT_FALSE(r.outcomes[i].attained());
  }
  EXPECT_EQ(r.errors.count("HTTP 429"), 1u);
  EXPECT_EQ(r.errors.count("HTTP 404"), 1u);
  EXPECT_EQ(r.errors.count("engine died"), 1u);
  EXPECT_EQ(r.errors.count("the stream ended without [DONE]"), 1u);
  EXPECT_EQ(r.errors.size(), 5u);
  EXPECT_EQ(r.answered, 5u);
}

TEST_F(RunTest, RequestsAtOnceHaveConnectionsOfTheirOwn) {
  EXPECT_EQ(Send({"a", "b", "c"}).answered, 3u);
  EXPECT_EQ(server_.connections(), 3);
}

TEST_F(RunTest, ConnectionThatWasClosedWhileIdleIsReplaced) {
  const RunResult r = Send({"once", "a"}, 0.05);
  ASSERT_EQ(r.outcomes.size(), 2u);
  EXPECT_EQ(r.outcomes[0].end, End::kDone);
  EXPECT_EQ(r.outcomes[1].end, End::kDone) << r.errors.begin()->first;
}

TEST_F(RunTest, SlosAreSentWhenAsked) {
  options_.send_slo = true;
  options_.slos["a"] = {0.25, 0.05};
  Send({"a"});
  EXPECT_NE(server_.last_head().find("x-slo-ttft-ms: 250"), std::string::npos);
  EXPECT_NE(server_.last_head().find("x-slo-tpot-ms: 50"), std::string::npos);
}

TEST_F(RunTest, WhereNoServerListensAllFail) {
  options_.target.port = "1";
  const RunResult r = Send({"a"});
  ASSERT_EQ(r.outcomes.size(), 1u);
  EXPECT_EQ(r.outcomes[0].end, End::kFailed);
  EXPECT_EQ(r.answered, 0u);
}

TEST_F(RunTest, ReportsAreWholeAndCountEveryRequest) {
  const RunResult r = Send({"a", "refused", "cut"});
  const auto json = nlohmann::json::parse(ToJson(r, trace_, "script"));
  EXPECT_EQ(json["all"]["requests"], 3);
  EXPECT_EQ(json["all"]["done"], 1);
  EXPECT_EQ(json["models"]["refused"]["dropped"], 1);
  EXPECT_EQ(json["models"]["cut"]["failed"], 1);
  EXPECT_TRUE(json["all"]["all_ttft_s"]["p99"].is_null());
  EXPECT_NE(ToSvg(r).find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace fineserve::loadgen

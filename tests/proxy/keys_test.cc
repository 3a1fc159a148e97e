// Clients with keys that have names: their terms, and what they spend.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/proxy/site.h"
#include "tests/proxy/threaded_engine.h"

namespace fineserve::proxy_tests {
namespace {

using nlohmann::json;
using process::Breathe;
using process::Eventually;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAlices[] = "Authorization: Bearer sk-alice\r\n";

class KeysTest : public ProxyTest {
 protected:
  void StartWith(const std::string& keys) {
    WriteFile(folder_ + "/keys", keys);
    Start("keys = \"" + folder_ + "/keys\"\n");
  }
  Peer::Message GetWithKey(const std::string& path) {
    Peer client =
        Client("GET " + path + " HTTP/1.1\r\nHost: x\r\n" + kAlices + "\r\n");
    return client.ReceiveMessage();
  }
  json Usage() { return json::parse(GetWithKey("/v1/usage").body); }
  // Sends a chat that an engine answers with `answer`; returns what the client
  // received.
  Peer::Message Chat(const std::string& answer, const char* body = kChat) {
    Peer client = Client(Post("/v1/chat/completions", body, kAlices));
    Peer engine = AcceptChat();
    engine.Answer(answer);
    return client.ReceiveMessage();
  }
};

constexpr char kWithUsage[] =
    R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}})";

TEST_F(KeysTest, AnswerCostsWhatItsEngineCounted) {
  StartWith("sk-alice name=alice tokens_per_day=1000\n");
  EXPECT_EQ(Chat(Plain(kWithUsage)).status(), 200);
  json usage = Usage();
  EXPECT_EQ(usage["key"], "alice");
  EXPECT_EQ(usage["requests"], 1);
  EXPECT_EQ(usage["prompt_tokens"], 7);
  EXPECT_EQ(usage["output_tokens"], 5);
  EXPECT_EQ(usage["tokens_today"], 12);
  EXPECT_EQ(usage["under_way"], 0);
  EXPECT_EQ(Metric("fineserve_key_requests_total{key=\"alice\"}"), 1);
  EXPECT_EQ(Metric("fineserve_key_tokens_total{key=\"alice\",kind=\"output\"}"),
            5);
  EXPECT_EQ(Metric("fineserve_key_spent_today_tokens{key=\"alice\"}"), 12);
  EXPECT_EQ(Metric("fineserve_key_daily_budget_tokens{key=\"alice\"}"), 1000);
  EXPECT_THAT(Get("/requests", true).body, HasSubstr("\"key\":\"alice\""));
  json again = json::parse(Get("/usage", true).body)["keys"][0];
  for (json* one : {&usage, &again}) one->erase("day_ends_s");  // it goes on
  EXPECT_EQ(again, usage);
}

TEST_F(KeysTest, RequestThatAnEngineFailsIsFree) {
  StartWith("sk-alice name=alice\n");
  EXPECT_EQ(Chat("HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\n{}").status(),
            400);
  const json usage = Usage();
  EXPECT_EQ(usage["requests"], 1);
  EXPECT_EQ(usage["tokens_today"], 0);
}

TEST_F(KeysTest, RequestThatIsRefusedInTheEndIsFree) {
  a_.Close();
  b_.Close();
  StartWith("sk-alice name=alice\n");
  Peer client = Client(Post("/v1/chat/completions", kChat, kAlices));
  EXPECT_EQ(client.ReceiveMessage().status(), 503);
  EXPECT_EQ(Usage()["tokens_today"], 0);
}

// Whatever the client asks for that is behind it, or instead of it.
TEST_F(KeysTest, AnswerWithoutUsageCostsItsBytes) {
  StartWith("sk-alice name=alice\n");
  EXPECT_EQ(Chat(Plain(R"({"choices":[")" + std::string(4000, 'x') + R"("]})"))
                .status(),
            200);
  EXPECT_NEAR(Usage()["output_tokens"].get<int>(), 1000, 10);
}

TEST_F(KeysTest, LimitedKeyMayNotAskInTheBackground) {
  StartWith("sk-alice name=alice tokens_per_day=9\n");
  Peer client = Client(Post("/v1/responses",
                            R"({"model":"chat","input":"x","background":true})",
                            kAlices));
  const Peer::Message refusal = client.ReceiveMessage();
  EXPECT_EQ(refusal.status(), 403);
  EXPECT_EQ(refusal.Field("x-fineserve-reason"), "background_not_allowed");
}

TEST_F(KeysTest, SpentBudgetIsRefusedWithTheTimeThatItLasts) {
  StartWith("sk-alice name=alice tokens_per_day=12\n");
  EXPECT_EQ(Chat(Plain(kWithUsage)).status(), 200);
  Peer client = Client(Post("/v1/chat/completions", kChat, kAlices));
  const Peer::Message refusal = client.ReceiveMessage();
  EXPECT_EQ(refusal.status(), 429);
  EXPECT_EQ(refusal.Field("x-fineserve-reason"), "budget_spent");
  EXPECT_THAT(refusal.Field("retry-after"), Not(""));
  EXPECT_EQ(Metric("fineserve_key_refusals_total{key=\"alice\",reason="
                   "\"budget_spent\"}"),
            1);
  // The next proxy knows it, too.
  proxy_->EndBy(SIGKILL);
  proxy_.reset();
  Start("keys = \"" + folder_ + "/keys\"\n");
  client = Client();
  client.Send(Post("/v1/chat/completions", kChat, kAlices));
  EXPECT_EQ(client.ReceiveMessage().status(), 429);
}

TEST_F(KeysTest, ClientSeesAndAsksForItsModelsAlone) {
  StartWith("sk-alice name=alice models=code\n");
  EXPECT_THAT(GetWithKey("/v1/models").body, Not(HasSubstr("\"chat\"")));
  EXPECT_THAT(GetWithKey("/v1/models").body, HasSubstr("\"code\""));
  Peer client = Client(Post("/v1/chat/completions", kChat, kAlices));
  const Peer::Message refusal = client.ReceiveMessage();
  EXPECT_EQ(refusal.status(), 403);
  EXPECT_EQ(refusal.Field("x-fineserve-reason"), "model_not_allowed");
}

TEST_F(KeysTest, KilledProxyHasChargedWhatPassed) {
  StartWith("sk-alice name=alice\n");
  Peer client = Client(Post("/v1/chat/completions", kStream, kAlices));
  Peer engine = AcceptChat();
  engine.Answer(kStreamHead + Chunk("data: 1\n\n"));
  client.ReceiveUntil("\r\n\r\n");
  EXPECT_EQ(client.ReceiveChunk(), "data: 1\n\n");
  EXPECT_EQ(Usage()["under_way"], 1);
  proxy_->EndBy(SIGKILL);
  proxy_.reset();
  Start("keys = \"" + folder_ + "/keys\"\n");
  const json usage = Usage();
  EXPECT_EQ(usage["requests"], 1);
  EXPECT_GT(usage["prompt_tokens"], 0);
  EXPECT_EQ(usage["output_tokens"], 1);
  EXPECT_EQ(usage["under_way"], 0);
}

TEST_F(KeysTest, ReloadThatCannotOpenALedgerKeepsTheKeys) {
  StartWith("sk-alice trusted\n");
  WriteFile(folder_ + "/keys.ledger", "a letter");
  WriteFile(folder_ + "/keys", "sk-bob name=bob\n");
  proxy_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([this] {
    return proxy_->Stderr().find("is no ledger of this version") !=
           std::string::npos;
  }));
  EXPECT_EQ(GetWithKey("/v1/models").status(), 200);
}

// Counts of clients whose proxy is killed again and again.
struct Seen {
  std::atomic<int> sent{0}, answered{0};
};

// Sends requests until `ends`, over a new connection after each kill.
void AskUntil(const std::atomic<uint16_t>& port, const std::atomic<bool>& ends,
              Seen* seen) {
  while (!ends) {
    Peer client = Peer::To(port);
    if (!client.is_open()) Breathe();
    while (!ends && client.is_open()) {
      ++seen->sent;
      client.SendNow(Post("/v1/chat/completions", kStream, kAlices));
      const std::string answer = client.ReceiveUntil(kLastChunk);
      if (answer.find(kAnswer) == std::string::npos) break;
      ++seen->answered;
    }
  }
}

TEST_F(KeysTest, CountsStayRightWhileTheProxyIsKilled) {
  ThreadedEngine a(&a_, Manner::kGood), b(&b_, Manner::kGood);
  StartWith("sk-alice name=alice\n");
  Seen seen;
  std::atomic<uint16_t> port{port_};
  std::atomic<bool> ends{false};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] { AskUntil(port, ends, &seen); });
  }
  int kills = 0;
  for (; kills < 20; ++kills) {
    const int before = seen.answered;
    EXPECT_TRUE(Eventually([&] { return seen.answered >= before + 20; }));
    proxy_->EndBy(SIGKILL);
    proxy_.reset();
    Start("keys = \"" + folder_ + "/keys\"\n");
    port = port_;
  }
  ends = true;
  for (std::thread& client : clients) client.join();
  const json usage = Usage();
  const int requests = usage["requests"], output = usage["output_tokens"];
  EXPECT_GE(requests, seen.answered);
  EXPECT_LE(requests, seen.sent);
  // Each kill interrupts at most one request of each client.
  EXPECT_LE(requests, seen.answered + 4 * kills);
  EXPECT_GE(output, seen.answered);
  EXPECT_LE(output, a.requests() + b.requests());
  proxy_.reset();
}

}  // namespace
}  // namespace fineserve::proxy_tests

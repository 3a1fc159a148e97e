// A model whose engines count prompts, by /tokenize, before admission is asked.

#include <gmock/gmock.h>

#include <string>

#include "tests/proxy/admission_site.h"

namespace fineserve::proxy_tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kExact[] =
    R"(fineserve_prompts_total{model="m",tokens="exact"})";
constexpr char kFallback[] =
    R"(fineserve_prompts_total{model="m",tokens="fallback"})";
// The estimate for a prompt of 8 bytes.
constexpr uint32_t kEstimate = 2;

class PromptCountTest : public AdmissionSite {
 protected:
  PromptCountTest() : AdmissionSite(/*counts_prompts=*/true) {}

  // Returns the prompt tokens that admission got with the newest request; 0 if
  // it was not asked.
  uint32_t CountedTokens() {
    const auto requests = journal_.requests();
    return requests.empty() ? 0 : requests.back().prompt_tokens;
  }
};

TEST_F(PromptCountTest, AdmissionHearsWhatTheEngineCounted) {
  Peer client = Ask("refuse");
  Peer engine = a_.Accept();
  const Peer::Message asked = engine.ReceiveMessage();
  EXPECT_THAT(asked.head, StartsWith("POST /tokenize HTTP/1.1\r\n"));
  EXPECT_THAT(asked.body, HasSubstr(R"("prompt":"12345678")"));
  EXPECT_EQ(CountedTokens(), 0u) << "before the engine has counted";
  engine.Send(Plain(R"({"count":7,"max_model_len":9,"tokens":[1,2]})"));
  EXPECT_EQ(client.ReceiveMessage().status(), 429);
  EXPECT_EQ(CountedTokens(), 7u);
  EXPECT_EQ(Metric(kExact), 1);
}

TEST_F(PromptCountTest, EnginesTakeTurnsAndKeepTheirConnections) {
  Peer first = Ask("x");
  Peer a = a_.Accept();
  a.Answer(Plain(R"({"count":7})"));
  // The request itself comes on the same connection.
  EXPECT_THAT(a.ReceiveMessage().head, StartsWith("POST /v1/completions "));
  a.Send(Plain("{}"));
  EXPECT_EQ(first.ReceiveMessage().status(), 200);
  Peer second = Ask("x");
  Peer b = b_.Accept();
  EXPECT_THAT(b.ReceiveMessage().head, StartsWith("POST /tokenize "));
  b.Send(Plain(R"({"count":8})"));
  EXPECT_THAT(a.ReceiveMessage().head, StartsWith("POST /v1/completions "));
  a.Send(Plain("{}"));
  EXPECT_EQ(second.ReceiveMessage().status(), 200);
}

TEST_F(PromptCountTest, KeptConnectionThatHasEndedIsReplaced) {
  for (const char* count : {"7", "8"}) {
    Peer client = Ask("refuse");
    // The engines take turns, so the second time it is b.
    Peer engine = std::string(count) == "7" ? a_.Accept() : b_.Accept();
    engine.Answer(Plain(R"({"count":1})"));
    client.ReceiveMessage();
  }
  // Both engines have closed the connections that the proxy kept.
  Peer client = Ask("refuse");
  Peer again = a_.Accept();
  again.Answer(Plain(R"({"count":9})"));
  client.ReceiveMessage();
  EXPECT_EQ(CountedTokens(), 9u);
  EXPECT_EQ(Metric(kExact), 3);
}

TEST_F(PromptCountTest, LongListOfTokensIsPassedOver) {
  Peer client = Ask("refuse");
  Peer engine = a_.Accept();
  engine.ReceiveMessage();
  std::string tokens;
  for (int i = 0; i < 100'000; ++i) tokens += std::to_string(i) + ",";
  engine.Send(Plain(R"({"count":100000,"tokens":[)" + tokens + "1]}"));
  client.ReceiveMessage();
  EXPECT_EQ(CountedTokens(), 100'000u);
  // The answer was read to its end, so the next request but one uses this
  // connection.
  for (Listener* at : {&b_, static_cast<Listener*>(nullptr)}) {
    Peer next = Ask("refuse");
    Peer other = at != nullptr ? at->Accept() : Peer(driver::Descriptor());
    Peer& asked = at != nullptr ? other : engine;
    asked.Answer(Plain(R"({"count":3})"));
    next.ReceiveMessage();
  }
  EXPECT_EQ(CountedTokens(), 3u);
}

TEST_F(PromptCountTest, WithoutACountThePromptIsEstimated) {
  const std::string answers[] = {
      "HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\n\r\n{\"count\":5}\n",
      Plain(R"({"tokens":[1,2]})"), Plain("<html>"), "SSH-2.0\r\n", ""};
  int fallbacks = 0;
  for (const std::string& answer : answers) {
    Peer client = Ask("refuse");
    Peer engine = fallbacks % 2 == 0 ? a_.Accept() : b_.Accept();
    engine.Answer(answer);
    engine.Close();
    EXPECT_EQ(client.ReceiveMessage().status(), 429);
    EXPECT_EQ(CountedTokens(), kEstimate) << answer;
    EXPECT_EQ(Metric(kFallback), ++fallbacks);
  }
  EXPECT_EQ(Metric(kExact), 0);
}

TEST_F(PromptCountTest, EngineThatDoesNotListenIsNotWaitedFor) {
  a_.Close();
  Peer client = Ask("refuse");
  EXPECT_EQ(client.ReceiveMessage().status(), 429);
  EXPECT_EQ(CountedTokens(), kEstimate);
}

// The SLO counts from the request's arrival, however long it took to count the
// prompt.
TEST_F(PromptCountTest, SlowEngineIsLeftAloneAfterItsTime) {
  const uint64_t before = clock_.NowNs();
  Peer client = Ask("refuse");
  Peer engine = a_.Accept();
  engine.ReceiveMessage();
  EXPECT_EQ(client.ReceiveMessage().status(), 429);
  EXPECT_TRUE(engine.IsClosed());
  EXPECT_EQ(CountedTokens(), kEstimate);
  EXPECT_EQ(Metric(kFallback), 1);
  ASSERT_EQ(journal_.requests().size(), 1u);
  const uint64_t arrived = journal_.requests()[0].arrived_ns;
  EXPECT_GE(arrived, before);
  EXPECT_GE(clock_.NowNs() - arrived, 1'000'000'000u);
}

TEST_F(PromptCountTest, ClientThatLeavesInBetweenEndsTheCount) {
  Peer client = Ask("x");
  Peer engine = a_.Accept();
  engine.ReceiveMessage();
  client.Close();
  EXPECT_TRUE(engine.IsClosed());
  EXPECT_TRUE(process::Eventually([&] {
    return Metric(R"(fineserve_requests_total{model="m",status="499"})") == 1;
  }));
  EXPECT_EQ(CountedTokens(), 0u) << "nothing was admitted";
  EXPECT_LT(Metric(kFallback), 1);
}

TEST_F(PromptCountTest, TokenIdsAreCountedHere) {
  Peer client = Peer::To(port_);
  client.Send(Post("/v1/completions", R"({"model":"m","prompt":[5,6,7]})",
                   "x-gateway-inference-fairness-id: refuse\r\n"));
  EXPECT_EQ(client.ReceiveMessage().status(), 429);
  EXPECT_EQ(CountedTokens(), 3u);
  EXPECT_TRUE(a_.IsQuiet() && b_.IsQuiet());
  EXPECT_EQ(Metric(kExact), 1);
}

TEST_F(PromptCountTest, CountsTeachTheEstimateInTheirPlace) {
  for (int i = 0; i < 200; ++i) {
    Peer client = Ask("refuse");
    Peer engine = i % 2 == 0 ? a_.Accept() : b_.Accept();
    engine.Answer(Plain(R"({"count":8})"));
    client.ReceiveMessage();
  }
  a_.Close();
  b_.Close();
  Peer client = Ask("refuse");
  client.ReceiveMessage();
  EXPECT_GT(CountedTokens(), kEstimate);
}

}  // namespace
}  // namespace fineserve::proxy_tests

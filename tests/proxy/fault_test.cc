// Clients and engines that go away, or were never there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

using integration::Eventually;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FaultTest : public ProxyTest {};

TEST_F(FaultTest, EngineLearnsThatItsClientLeftAStream) {
  Start();
  Stream stream = Begin();
  stream.client.Close();
  EXPECT_TRUE(stream.engine.IsClosed());
  EXPECT_TRUE(Eventually([&] {
    return Metric("fineserve_requests_total{model=\"chat\",status=\"499\"}") ==
           1;
  }));
  EXPECT_EQ(Metric("fineserve_requests_running"), 0);
}

TEST_F(FaultTest, EngineLearnsThatItsClientDidNotWaitForAnAnswer) {
  Start();
  Peer client = Client();
  client.Send(Post("/v1/chat/completions", kChat));
  Peer engine = AcceptChat();
  engine.ReceiveMessage();
  client.Abort();
  EXPECT_TRUE(engine.IsClosed());
}

TEST_F(FaultTest, StreamOfADeadEngineEndsWithAnErrorEvent) {
  Start();
  Stream stream = Begin();
  Stream other = Begin();
  stream.engine.Abort();
  EXPECT_THAT(stream.client.ReceiveChunk(),
              StartsWith("data: {\"error\":{\"message\":"));
  EXPECT_EQ(stream.client.Receive(5), kLastChunk);
  // The connection stays usable, and so do others.
  stream.client.Send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(stream.client.ReceiveMessage().status(), 200);
  other.engine.Send(Chunk("data: 2\n\n") + kLastChunk);
  EXPECT_EQ(other.client.ReceiveChunk(), "data: 2\n\n");
}

TEST_F(FaultTest, StreamOfAnthropicsApiEndsWithAnEventThatHasAName) {
  Start();
  Stream stream = Begin("/v1/messages");
  stream.engine.Abort();
  EXPECT_THAT(stream.client.ReceiveChunk(),
              StartsWith("event: error\ndata: {\"type\":\"error\","));
}

TEST_F(FaultTest, EventThatWasCutIsEndedBeforeTheError) {
  Start();
  Stream stream = Begin();
  stream.engine.Send(Chunk("data: {\"cu"));
  EXPECT_EQ(stream.client.ReceiveChunk(), "data: {\"cu");
  stream.engine.Close();
  EXPECT_THAT(stream.client.ReceiveChunk(), StartsWith("\n\ndata: {\"error\""));
}

TEST_F(FaultTest, PlainAnswerOfADeadEngineIsSeenToBeCut) {
  Start();
  Peer client = Client();
  client.Send(Post("/v1/chat/completions", kChat));
  Peer engine = AcceptChat();
  engine.ReceiveMessage();
  engine.Send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345");
  client.ReceiveUntil("\r\n\r\n");
  EXPECT_EQ(client.Receive(5), "12345");
  engine.Close();
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(FaultTest, EngineThatDoesNotAnswerIsReplacedOnce) {
  Start();
  Peer client = Client();
  client.Send(Post("/v1/chat/completions", kChat));
  Peer first = a_.Accept();
  first.ReceiveMessage();
  first.Close();
  Peer second = b_.Accept();
  EXPECT_EQ(second.ReceiveMessage().body, kChat);
  second.Send(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
  EXPECT_EQ(Metric("fineserve_retries_total{model=\"chat\"}"), 1);
}

TEST_F(FaultTest, NoEngineThatListensIsAnAnswer) {
  Start();
  a_.Close();
  b_.Close();
  Peer client = Client();
  client.Send(Post("/v1/chat/completions", kChat));
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 503);
  EXPECT_EQ(answer.Field("retry-after"), "1");
  EXPECT_EQ(answer.Field("x-fineserve-reason"), "no_engine");
  EXPECT_THAT(answer.body, HasSubstr("{\"error\":{\"message\":"));
  // The other model is not affected.
  client.Send(Post("/v1/completions", R"({"model":"code"})"));
  Peer engine = c_.Accept();
  engine.ReceiveMessage();
  engine.Send(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
}

TEST_F(FaultTest, WithoutADaemonFailClosedRefuses) {
  Start("without_daemon = \"fail_closed\"\n");
  Peer client = Client();
  client.Send(Post("/v1/chat/completions", kChat));
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 503);
  EXPECT_EQ(answer.Field("x-fineserve-reason"), "scheduler_away");
  EXPECT_EQ(answer.Field("retry-after"), "2");
  EXPECT_EQ(Get("/ready").status(), 503);
  EXPECT_EQ(Get("/live").status(), 200);
  EXPECT_TRUE(a_.IsQuiet() && b_.IsQuiet());
}

TEST_F(FaultTest, NothingIsTriedAgainAfterTheFirstByte) {
  Start();
  Peer client = Client();
  client.Send(Post("/v1/chat/completions", kChat));
  Peer engine = a_.Accept();
  engine.ReceiveMessage();
  engine.Send("HTTP/1.1 20");
  engine.Close();
  EXPECT_EQ(client.ReceiveMessage().status(), 502);
  EXPECT_TRUE(a_.IsQuiet() && b_.IsQuiet());
}

TEST_F(FaultTest, EngineThatTalksNoHttpIsAnError) {
  Start();
  for (const char* nonsense :
       {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 000 OK\r\n\r\n"}) {
    Peer client = Client();
    client.Send(Post("/v1/completions", R"({"model":"code"})"));
    Peer engine = c_.Accept();
    engine.ReceiveMessage();
    engine.Send(nonsense);
    EXPECT_EQ(client.ReceiveMessage().status(), 502) << nonsense;
  }
}

// If the engine has closed a kept connection meanwhile, that says nothing about
// the engine.
TEST_F(FaultTest, KeptConnectionThatHasEndedIsReplaced) {
  Start();
  Peer client = Client();
  client.Send(Post("/v1/completions", R"({"model":"code"})"));
  Peer engine = c_.Accept();
  engine.ReceiveMessage();
  engine.Send(Plain("{}"));
  client.ReceiveMessage();
  engine.Close();
  client.Send(Post("/v1/completions", R"({"model":"code"})"));
  Peer again = c_.Accept();
  again.ReceiveMessage();
  again.Send(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
  EXPECT_EQ(Metric("fineserve_retries_total{model=\"code\"}"), 0);
}

}  // namespace
}  // namespace fineserve::proxy_tests

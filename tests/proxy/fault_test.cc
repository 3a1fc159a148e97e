// Clients and engines that go away, or were never there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

using process::Eventually;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FaultTest : public ProxyTest {
 protected:
  // Lets the next engine that gets a request send `bytes` and close. Returns
  // true if that is engine a.
  bool Failing(const std::string& bytes) {
    EXPECT_TRUE(Eventually([this] { return !a_.IsQuiet() || !b_.IsQuiet(); }));
    const bool is_a = !a_.IsQuiet();
    Peer engine = is_a ? a_.Accept() : b_.Accept();
    engine.Answer(bytes);
    engine.Close();
    return is_a;
  }
  // The engines a and b.
  double EngineErrors(const std::string& error) {
    double sum = 0;
    for (const char* engine : {"a", "b"}) {
      const double errors =
          Metric("fineserve_engine_errors_total{engine=\"" +
                 std::string(engine) + "\",error=\"" + error + "\"}");
      sum += errors > 0 ? errors : 0;
    }
    return sum;
  }
};

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
  Peer client = Client(Post("/v1/chat/completions", kChat));
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
  // The connection stays usable, and so do other connections.
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
  Peer client = Client(Post("/v1/chat/completions", kChat));
  Peer engine = AcceptChat();
  engine.Answer("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345");
  client.ReceiveUntil("\r\n\r\n");
  EXPECT_EQ(client.Receive(5), "12345");
  engine.Close();
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(FaultTest, EngineThatDoesNotAnswerIsReplaced) {
  Start();
  Peer client = Client(Post("/v1/chat/completions", kChat));
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
  Peer client = Client(Post("/v1/chat/completions", kChat));
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 503);
  EXPECT_EQ(answer.Field("retry-after"), "1");
  EXPECT_EQ(answer.Field("x-fineserve-reason"), "no_engine");
  EXPECT_THAT(answer.body, HasSubstr("{\"error\":{\"message\":"));
  // The other model is not affected.
  client.Send(Post("/v1/completions", R"({"model":"code"})"));
  Peer engine = c_.Accept();
  engine.Answer(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
}

TEST_F(FaultTest, WithoutADaemonFailClosedRefuses) {
  Start("without_daemon = \"fail_closed\"\n");
  Peer client = Client(Post("/v1/chat/completions", kChat));
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 503);
  EXPECT_EQ(answer.Field("x-fineserve-reason"), "scheduler_away");
  EXPECT_EQ(answer.Field("retry-after"), "2");
  EXPECT_EQ(Get("/ready").status(), 503);
  EXPECT_EQ(Get("/live").status(), 200);
  EXPECT_TRUE(a_.IsQuiet() && b_.IsQuiet());
}

// vLLM sends the head, comments and the first events of a response before its
// scheduler has the request.
TEST_F(FaultTest, RequestGoesElsewhereUntilItsEngineHasBegunToAnswer) {
  const std::string head = kStreamHead;
  const std::pair<std::string, const char*> faults[] = {
      {"HTTP/1.1 20", "reset"},
      {"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n", "status"},
      {"HTTP/1.1 503 Full\r\nContent-Length: 0\r\n\r\n", "status"},
      {"SSH-2.0-OpenSSH_9.2\r\n", "reset"},
      {head, "reset"},
      {head + Chunk(": keep-alive\n\n") +
           Chunk("event: response.created\ndata: {}\n\n"),
       "reset"},
      {head + Chunk("data: {\"error\": {\"message\": \"died\"}}\n\n"), "event"},
  };
  for (const auto& [fault, error] : faults) {
    SCOPED_TRACE(fault);
    Start();
    Peer client = Client(Post("/v1/chat/completions", kStream));
    const bool first_is_a = Failing(fault);
    Peer other = first_is_a ? b_.Accept() : a_.Accept();
    EXPECT_EQ(other.ReceiveMessage().body, kStream);
    other.Send(head + Chunk(": wait\n\n") + Chunk("data: 1\n\n") + kLastChunk);
    EXPECT_THAT(client.ReceiveUntil(kLastChunk),
                ::testing::AllOf(StartsWith("HTTP/1.1 200"),
                                 HasSubstr(": wait\n\ndata: 1\n\n")));
    EXPECT_EQ(EngineErrors(error), 1);
  }
}

TEST_F(FaultTest, WithoutAnotherEngineTheEnginesOwnErrorPasses) {
  Start();
  const std::string errors[] = {
      "HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nno",
      kStreamHead + Chunk("data: {\"error\":{}}\n\n") + kLastChunk,
  };
  for (const std::string& error : errors) {
    Peer client =
        Client(Post("/v1/completions", R"({"model":"code","stream":true})"));
    Peer engine = c_.Accept();
    engine.Answer(error);
    const std::string body = error.substr(error.find("\r\n\r\n") + 4);
    EXPECT_THAT(client.ReceiveUntil(body), ::testing::EndsWith(body));
    engine.Close();
  }
  EXPECT_EQ(Metric("fineserve_retries_total{model=\"code\"}"), 0);
}

// An engine counts as broken after a few errors, and is tried now and then.
TEST_F(FaultTest, EngineThatErrsDoesNotDrawTheTraffic) {
  Start();
  int asked_broken = 0;
  for (int i = 0; i < 20; ++i) {
    Peer client = Client(Post("/v1/chat/completions", kChat));
    for (;;) {
      process::Eventually([&] { return !a_.IsQuiet() || !b_.IsQuiet(); });
      const bool broken = !a_.IsQuiet();
      Peer engine = broken ? a_.Accept() : b_.Accept();
      engine.Answer(broken ? "HTTP/1.1 500 Oops\r\nConnection: close\r\n"
                             "Content-Length: 0\r\n\r\n"
                           : "HTTP/1.1 200 OK\r\nConnection: close\r\n"
                             "Content-Length: 0\r\n\r\n");
      asked_broken += broken;
      if (!broken) break;
    }
    ASSERT_EQ(client.ReceiveMessage().status(), 200) << i;
  }
  EXPECT_GE(asked_broken, 5);
  EXPECT_LE(asked_broken, 7);
}

TEST_F(FaultTest, ForwardedRequestIsTriedOnADifferentEngine) {
  Start();
  for (int i = 0; i < 4; ++i) {
    Peer client =
        Client(Post("/v1/embeddings", R"({"model":"chat","input":"x"})"));
    const bool first_is_a =
        Failing("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    Peer other = first_is_a ? b_.Accept() : a_.Accept();
    other.Answer(Plain("{}"));
    ASSERT_EQ(client.ReceiveMessage().status(), 200);
  }
}

TEST_F(FaultTest, EngineThatHangsIsLeftForAnother) {
  Start("engine_timeout = 1\n");
  Peer client = Client(Post("/v1/chat/completions", kStream));
  Peer hangs = AcceptChat();
  hangs.Answer(kStreamHead + Chunk(": keep-alive\n\n"));
  Peer other = AcceptChat();
  EXPECT_EQ(other.ReceiveMessage().body, kStream);
  EXPECT_TRUE(hangs.IsClosed());
  other.Send(kStreamHead + Chunk("data: 1\n\n") + kLastChunk);
  client.ReceiveUntil(kLastChunk);
  EXPECT_EQ(EngineErrors("timeout"), 1);
}

TEST_F(FaultTest, LoneEngineThatHangsIsAnAnswerToo) {
  Start("engine_timeout = 1\n");
  Peer client =
      Client(Post("/v1/completions", R"({"model":"code","stream":true})"));
  Peer hangs = c_.Accept();
  hangs.ReceiveMessage();
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 504);
  EXPECT_EQ(answer.Field("x-fineserve-reason"), "engine_silent");
  EXPECT_TRUE(hangs.IsClosed());
}

TEST_F(FaultTest, StreamThatStopsInTheMiddleEndsWithAnErrorEvent) {
  Start("engine_timeout = 1\n");
  Stream stream = Begin();
  EXPECT_THAT(stream.client.ReceiveChunk(), StartsWith("data: {\"error\""));
}

TEST_F(FaultTest, ErrorInTheMiddleOfAStreamPassesAndIsCounted) {
  Start();
  Stream stream = Begin();
  stream.engine.Send(Chunk("data: {\"error\":{\"message\":\"died\"}}\n\n") +
                     Chunk("data: [DONE]\n\n") + kLastChunk);
  EXPECT_THAT(stream.client.ReceiveUntil(kLastChunk), HasSubstr("died"));
  EXPECT_TRUE(Eventually([&] { return EngineErrors("event") == 1; }));
}

// By way of others, too.
TEST_F(FaultTest, RequestThatComesBackIsRefused) {
  Start();
  Peer client =
      Client(Post("/v1/completions", R"({"model":"code"})", "Via: 1.0 x\r\n"));
  Peer engine = c_.Accept();
  const Peer::Message asked = engine.ReceiveMessage();
  EXPECT_THAT(asked.head, HasSubstr("\r\nVia: 1.0 x\r\n"));
  const std::string own = asked.head.substr(asked.head.find("\r\nvia: ") + 7);
  const std::string via = own.substr(0, own.find("\r\n"));
  EXPECT_THAT(via, HasSubstr("1.1 fineserve-"));
  Peer again = Client(Post("/v1/completions", R"({"model":"code"})",
                           "Via: 1.0 x," + via + ", 1.1 y\r\n"));
  const Peer::Message answer = again.ReceiveMessage();
  EXPECT_EQ(answer.status(), 508);
  EXPECT_EQ(answer.Field("x-fineserve-reason"), "loop");
  engine.Send(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
}

// Such bytes would become the next client's answer, and shift all later
// answers.
TEST_F(FaultTest, BytesThatAnEngineSendsUnaskedReachNoClient) {
  Start();
  Peer client = Client(Post("/v1/completions", R"({"model":"code"})"));
  Peer engine = c_.Accept();
  engine.Answer(Plain("first"));
  EXPECT_EQ(client.ReceiveMessage().body, "first");
  engine.Send(Plain("unasked"));
  client.Send(Post("/v1/completions", R"({"model":"code"})"));
  Peer again = c_.Accept();
  again.Answer(Plain("second"));
  EXPECT_EQ(client.ReceiveMessage().body, "second");
}

TEST_F(FaultTest, EngineThatTalksNoHttpIsAnError) {
  Start();
  const std::string bad_gateways =
      "fineserve_requests_total{model=\"code\",status=\"502\"}";
  int answers = 0;
  for (const char* nonsense :
       {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 000 OK\r\n\r\n"}) {
    Peer client = Client(Post("/v1/completions", R"({"model":"code"})"));
    Peer engine = c_.Accept();
    engine.Answer(nonsense);
    EXPECT_EQ(client.ReceiveMessage().status(), 502) << nonsense;
    EXPECT_EQ(Metric(bad_gateways), ++answers) << "each counts once";
  }
}

// A kept connection that the engine has closed in between says nothing about
// the engine.
TEST_F(FaultTest, KeptConnectionThatHasEndedIsReplaced) {
  Start();
  Peer client = Client(Post("/v1/completions", R"({"model":"code"})"));
  Peer engine = c_.Accept();
  engine.Answer(Plain("{}"));
  client.ReceiveMessage();
  engine.Close();
  client.Send(Post("/v1/completions", R"({"model":"code"})"));
  Peer again = c_.Accept();
  again.Answer(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
  EXPECT_EQ(Metric("fineserve_retries_total{model=\"code\"}"), 0);
}

}  // namespace
}  // namespace fineserve::proxy_tests

// Traffic between a client and an engine, byte for byte and in time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RelayTest : public ProxyTest {};

std::string AllBytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

TEST_F(RelayTest, RequestAndAnswerPassByteForByte) {
  Start();
  Peer client = Client(Post("/v1/chat/completions?x=1", kChat,
                            "traceparent: 00-ab-cd-01\r\nx-slo-ttft-ms: 900\r\n"
                            "X-Request-Id: mine\r\n"));
  Peer engine = AcceptChat();
  const Peer::Message asked = engine.ReceiveMessage();
  EXPECT_THAT(asked.head, StartsWith("POST /v1/chat/completions?x=1 HTTP/1.1"));
  EXPECT_EQ(asked.body, kChat);
  EXPECT_EQ(asked.Field("traceparent"), "00-ab-cd-01");
  EXPECT_EQ(asked.Field("x-slo-ttft-ms"), "900");
  EXPECT_EQ(asked.Field("x-request-id"), "mine");
  engine.Send(Plain(AllBytes()));
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 200);
  EXPECT_EQ(answer.body, AllBytes());
  EXPECT_EQ(answer.Field("x-request-id"), "mine");
}

TEST_F(RelayTest, EngineGetsItsModelsNameInsteadOfAnAlias) {
  Start();
  Peer client =
      Client(Post("/v1/completions",
                  R"({"prompt":"chat-latest","model" : "chat-latest" })"));
  Peer engine = AcceptChat();
  EXPECT_EQ(engine.ReceiveMessage().body,
            R"({"prompt":"chat-latest","model" : "chat" })");
  engine.Send(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
  // A request that is read outside the event loop.
  const std::string prompt(1 << 20, 'x');
  client.Send(Post("/v1/completions",
                   R"({"model":"chat-latest","prompt":")" + prompt + "\"}"));
  EXPECT_EQ(engine.ReceiveMessage().body,
            R"({"model":"chat","prompt":")" + prompt + "\"}");
  engine.Send(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
  EXPECT_THAT(Get("/v1/models").body, HasSubstr("\"code-latest\""));
}

TEST_F(RelayTest, RequestWithoutAnIdIsGivenOne) {
  Start();
  Peer client = Client(Post("/v1/chat/completions", kChat));
  Peer engine = AcceptChat();
  const std::string id = engine.ReceiveMessage().Field("x-request-id");
  EXPECT_EQ(id.size(), 32u);
  engine.Send(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().Field("x-request-id"), id);
}

// The engine sends its next piece only after the client has read the last one,
// so a proxy that holds a byte back runs into the time limit.
TEST_F(RelayTest, StreamArrivesPieceByPiece) {
  Start();
  Peer client = Client(Post("/v1/chat/completions", kStream));
  Peer engine = AcceptChat();
  engine.Answer(kStreamHead + Chunk("data: 1\n\n"));
  EXPECT_THAT(client.ReceiveUntil("\r\n\r\n"),
              HasSubstr("Content-Type: text/event-stream"));
  EXPECT_EQ(client.ReceiveChunk(), "data: 1\n\n");
  for (int i = 0; i < 50; ++i) {
    const std::string event = "data: {\"n\":" + std::to_string(i) + "}\n\n";
    // Cuts inside the event, because it does not matter where events end.
    engine.Send(Chunk(event.substr(0, 5)));
    ASSERT_EQ(client.ReceiveChunk(), event.substr(0, 5));
    engine.Send(Chunk(event.substr(5)));
    ASSERT_EQ(client.ReceiveChunk(), event.substr(5));
  }
  engine.Send(kLastChunk);
  EXPECT_EQ(client.Receive(5), kLastChunk);
  EXPECT_TRUE(client.IsQuiet());
}

TEST_F(RelayTest, StreamToHttp10EndsWithItsConnection) {
  Start();
  Peer client = Client();
  const std::string body = kStream;
  client.Send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  Peer engine = AcceptChat();
  engine.Answer(kStreamHead + Chunk("data: 1\n\n") + kLastChunk);
  const std::string answer = client.ReceiveAll();
  EXPECT_THAT(answer, HasSubstr("connection: close\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\ndata: 1\n\n"));
}

TEST_F(RelayTest, EnginesOwnErrorsPass) {
  Start();
  Peer client = Client(Post("/v1/completions", R"({"model":"code","n":-1})"));
  Peer engine = c_.Accept();
  engine.Answer(
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 422 Odd\r\n"
      "Content-Length: 3\r\nX-Own: 1\r\n\r\nno!");
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_THAT(answer.head, StartsWith("HTTP/1.1 422 Odd\r\n"));
  EXPECT_EQ(answer.Field("x-own"), "1");
  EXPECT_EQ(answer.body, "no!");
}

TEST_F(RelayTest, OtherPathsGoToTheModelsEngine) {
  Start();
  Peer client =
      Client(Post("/v1/embeddings", R"({"model":"code","input":"x"})"));
  Peer engine = c_.Accept();
  EXPECT_THAT(engine.ReceiveMessage().head,
              StartsWith("POST /v1/embeddings HTTP/1.1"));
  engine.Send(Plain("[1]"));
  EXPECT_EQ(client.ReceiveMessage().body, "[1]");
  client.Send(Post("/tokenize", R"({"model":"code","prompt":"x"})"));
  EXPECT_THAT(engine.ReceiveMessage().head, StartsWith("POST /tokenize "));
  engine.Send(Plain("[2]"));
  EXPECT_EQ(client.ReceiveMessage().body, "[2]");
}

TEST_F(RelayTest, PathsThatAreNotKnownGoToAnEngineIfTheFleetSaysSo) {
  Start("other_paths = \"forward\"\n");
  Peer client = Client(Post("/v1/own/thing", R"({"model":"code"})"));
  Peer engine = c_.Accept();
  EXPECT_THAT(engine.ReceiveMessage().head, StartsWith("POST /v1/own/thing "));
  engine.Send(Plain("[1]"));
  EXPECT_EQ(client.ReceiveMessage().body, "[1]");
}

TEST_F(RelayTest, ConnectionsToEnginesAreUsedAgain) {
  Start();
  Peer engine(driver::Descriptor{});
  for (int i = 0; i < 5; ++i) {
    Peer client = Client(Post("/v1/completions", R"({"model":"code"})"));
    if (!engine.is_open()) engine = c_.Accept();
    engine.Answer(Plain("{}"));
    ASSERT_EQ(client.ReceiveMessage().status(), 200);
  }
  EXPECT_TRUE(c_.IsQuiet());
}

TEST_F(RelayTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  Peer client = Client(Post("/v1/completions", R"({"model":"code","i":1})") +
                       Post("/v1/completions", R"({"model":"code","i":2})") +
                       "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  Peer engine = c_.Accept();
  for (const char* i : {"1", "2"}) {
    EXPECT_THAT(engine.ReceiveMessage().body, HasSubstr(i));
    engine.Send(Plain(i));
    EXPECT_EQ(client.ReceiveMessage().body, i);
  }
  EXPECT_EQ(client.ReceiveMessage().body, "{}");
}

TEST_F(RelayTest, ChunkedRequestIsForwardedWhole) {
  Start();
  Peer client = Client(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
      "Transfer-Encoding: chunked\r\n\r\n" +
      Chunk(R"({"model")"));
  client.Send(Chunk(R"(:"code"})") + kLastChunk);
  Peer engine = c_.Accept();
  EXPECT_EQ(engine.ReceiveMessage().body, R"({"model":"code"})");
}

TEST_F(RelayTest, ExpectedContinueComesBeforeTheBody) {
  Start();
  Peer client = Client();
  const std::string body = R"({"model":"code"})";
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.ReceiveUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send(body);
  Peer engine = c_.Accept();
  const Peer::Message asked = engine.ReceiveMessage();
  EXPECT_EQ(asked.body, body);
  EXPECT_EQ(asked.Field("expect"), "");
}

TEST_F(RelayTest, HeadAndOptions) {
  Start();
  Peer client = Client("HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.ReceiveUntil("\r\n\r\n"), HasSubstr("content-length: "));
  client.Send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string options = client.ReceiveUntil("\r\n\r\n");
  EXPECT_THAT(options, StartsWith("HTTP/1.1 204 "));
  EXPECT_THAT(options, HasSubstr("allow: POST, OPTIONS\r\n"));
  const std::string body = R"({"model":"code"})";
  client.Send("HEAD /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  Peer engine = c_.Accept();
  engine.Answer("HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n");
  EXPECT_THAT(client.ReceiveUntil("\r\n\r\n"),
              HasSubstr("Content-Length: 77\r\n"));
  EXPECT_TRUE(client.IsQuiet());
}

uint64_t ResidentBytes(pid_t pid) {
  std::ifstream statm("/proc/" + std::to_string(pid) + "/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// When the kernel's buffers are full, the engine has to wait. The proxy holds
// what one read gave, not the stream.
TEST_F(RelayTest, SlowReaderHoldsUpTheEngineNotTheMemory) {
  Start();
  Peer client = Client(Post("/v1/completions", R"({"model":"code"})"));
  Peer engine = c_.Accept();
  engine.ReceiveMessage();
  constexpr size_t kBytes = 64 << 20;
  const std::string block(1 << 20, 'x');
  engine.Send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kBytes) +
              "\r\n\r\nx");
  client.ReceiveUntil("\r\n\r\nx");
  const uint64_t before = ResidentBytes(proxy_->pid());
  size_t sent = 1;
  // Sends until nothing is taken for as long as the proxy needs to answer
  // another client.
  for (size_t last = 1; last != sent;) {
    last = sent;
    while (const size_t n = engine.SendNow(block)) sent += n;
    ASSERT_EQ(Get("/health").status(), 200);
  }
  ASSERT_LT(sent, kBytes);
  EXPECT_LT(ResidentBytes(proxy_->pid()), before + (4 << 20));
  for (size_t received = 1; received < kBytes && !HasFailure();) {
    const size_t room = std::min(block.size(), kBytes - sent);
    if (room > 0) sent += engine.SendNow(block.substr(0, room));
    const size_t wanted = std::min<size_t>(1 << 16, sent - received);
    received += client.Receive(wanted).size();
  }
}

}  // namespace
}  // namespace fineserve::proxy_tests

// Stored responses: each is read and cancelled at the engine that made it.

#include <gmock/gmock.h>
#include <signal.h>

#include <string>

#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kNotFound[] =
    "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n{\"a\"}";
constexpr char kGet[] =
    "GET /v1/responses/resp_1?x=y HTTP/1.1\r\nHost: x\r\n\r\n";

// Engines are asked in the fleet's order: a and b of "chat", c of "code".
class ResponseTest : public ProxyTest {
 protected:
  Peer Ask(const std::string& request) {
    Peer client = Client(request);
    return client;
  }
  // Answers the next request to this engine with `answer`, and returns the head
  // of that request.
  static std::string Answer(Peer* engine, const std::string& answer) {
    std::string head = engine->ReceiveMessage().head;
    engine->Send(answer);
    return head;
  }
  // Reads the response of engine c, which the proxy then knows to be c's.
  void FindAtC() {
    Peer client = Ask(kGet);
    a_peer_ = a_.Accept();
    Answer(&a_peer_, kNotFound);
    b_peer_ = b_.Accept();
    Answer(&b_peer_, kNotFound);
    c_peer_ = c_.Accept();
    Answer(&c_peer_, Plain("it"));
    ASSERT_EQ(client.ReceiveMessage().body, "it");
  }

  Peer a_peer_{driver::Descriptor()}, b_peer_{driver::Descriptor()},
      c_peer_{driver::Descriptor()};
};

TEST_F(ResponseTest, IsReadWhereItIsThoughItsRequestNamesNoModel) {
  Start();
  Peer client = Ask(kGet);
  Peer a = a_.Accept();
  EXPECT_THAT(Answer(&a, kNotFound),
              StartsWith("GET /v1/responses/resp_1?x=y HTTP/1.1\r\n"));
  Peer b = b_.Accept();
  Answer(&b, Plain(R"({"id":"resp_1"})"));
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 200);
  EXPECT_EQ(answer.body, R"({"id":"resp_1"})");
  EXPECT_TRUE(c_.IsQuiet());
  EXPECT_EQ(Metric(R"(fineserve_requests_total{model="chat",status="200"})"),
            1);
}

TEST_F(ResponseTest, OneThatWasFoundIsAskedForThereOnly) {
  Start();
  FindAtC();
  for (const std::string& request :
       {std::string(kGet), Post("/v1/responses/resp_1/cancel", "{}")}) {
    Peer client = Ask(request);
    Answer(&c_peer_, Plain("again"));
    EXPECT_EQ(client.ReceiveMessage().body, "again");
    EXPECT_TRUE(a_peer_.IsQuiet());
    EXPECT_TRUE(b_peer_.IsQuiet());
  }
}

TEST_F(ResponseTest, CancelReachesEachEngineWithItsBody) {
  Start();
  Peer client = Ask(Post("/v1/responses/resp_1/cancel", "body"));
  Peer a = a_.Accept();
  EXPECT_EQ(a.ReceiveMessage().body, "body");
  a.Send(kNotFound);
  Peer b = b_.Accept();
  EXPECT_EQ(b.ReceiveMessage().body, "body");
  // vLLM says this about a response that does not run in the background.
  b.Send("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno");
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 400);
  EXPECT_EQ(answer.body, "no");
}

TEST_F(ResponseTest, OneThatNoEngineHasIsNotFound) {
  Start();
  Peer client = Ask(kGet);
  for (Listener* engine : {&a_, &b_, &c_}) {
    Peer peer = engine->Accept();
    Answer(&peer, kNotFound);
  }
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 404);
  EXPECT_THAT(answer.body, HasSubstr("no engine has the response resp_1"));
}

// The response may exist, and a client that gets 404 would never ask again.
TEST_F(ResponseTest, EngineThatDoesNotAnswerMayHaveIt) {
  Start();
  b_.Close();
  Peer client = Ask(kGet);
  Peer a = a_.Accept();
  Answer(&a, kNotFound);
  Peer c = c_.Accept();
  Answer(&c, "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 503);
  EXPECT_NE(answer.Field("retry-after"), "");
  EXPECT_THAT(answer.body, HasSubstr("b, c"));
}

// For some five seconds each.
TEST_F(ResponseTest, EngineThatHangsDoesNotHideTheOthers) {
  Start();
  Peer client = Ask(kGet);
  Peer a = a_.Accept();
  a.ReceiveMessage();
  Peer b = b_.Accept();
  Answer(&b, Plain("it"));
  EXPECT_EQ(client.ReceiveMessage().body, "it");
  EXPECT_TRUE(a.IsClosed());
}

TEST_F(ResponseTest, EngineThatLostItIsNoLongerItsHome) {
  Start();
  FindAtC();
  Peer client = Ask(kGet);
  Answer(&c_peer_, kNotFound);
  Answer(&a_peer_, kNotFound);
  Answer(&b_peer_, Plain("moved"));
  EXPECT_EQ(client.ReceiveMessage().body, "moved");
  Peer next = Ask(kGet);
  Answer(&b_peer_, Plain("moved"));
  EXPECT_EQ(next.ReceiveMessage().body, "moved");
}

TEST_F(ResponseTest, RestartedProxyAsksEachEngineAgain) {
  Start();
  FindAtC();
  EXPECT_EQ(proxy_->EndBy(SIGTERM), 0);
  Start();
  FindAtC();
}

TEST_F(ResponseTest, StreamOfItIsRelayedAndEndsWithItsClient) {
  Start();
  FindAtC();
  Peer client = Ask(kGet);
  c_peer_.Answer(kStreamHead + Chunk("data: 1\n\n"));
  client.ReceiveUntil("\r\n\r\n");
  EXPECT_EQ(client.ReceiveChunk(), "data: 1\n\n");
  client.Close();
  EXPECT_TRUE(c_peer_.IsClosed());
}

TEST_F(ResponseTest, EnginesAreNotAskedForAClientThatLeft) {
  Start();
  Peer client = Ask(kGet);
  Peer a = a_.Accept();
  a.ReceiveMessage();
  client.Close();
  EXPECT_TRUE(a.IsClosed());
  EXPECT_EQ(Get("/health").status(), 200);
  EXPECT_TRUE(b_.IsQuiet());
}

}  // namespace
}  // namespace fineserve::proxy_tests

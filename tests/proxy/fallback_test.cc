// Requests that their model cannot serve, and endpoints outside the fleet.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "tests/proxy/site.h"
#include "tests/proxy/threaded_engine.h"

namespace fineserve::proxy_tests {
namespace {

using stage::Finished;
using stage::RunToEnd;
using ::testing::HasSubstr;
using ::testing::Not;

// "chat" has engines that are gone; "outside" is an endpoint that the test
// plays.
class FallbackTest : public ProxyTest {
 protected:
  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }
  static std::string Outside(const std::string& url, const std::string& more) {
    return "[[outside]]\nname = \"gpt\"\nurl = \"" + url + "\"\n" + more;
  }
  std::string Http() const {
    return "http://127.0.0.1:" + std::to_string(outside_.port()) + "/api/v1";
  }
  // chat falls back to `fallback`.
  void StartWith(const std::string& fallback, const std::string& more,
                 const std::string& settings = "") {
    chats_ = "fallback = \"" + fallback + "\"\n";
    Start(settings, {}, more);
  }
  Peer::Message Chat(const std::string& fields = "") {
    Peer client = Client(Post("/v1/chat/completions", kChat, fields));
    return client.ReceiveMessage();
  }

  Listener outside_;
};

TEST_F(FallbackTest, AnotherModelOfTheFleetAnswers) {
  a_.Close();
  b_.Close();
  StartWith("code", "");
  Peer client = Client(Post("/v1/chat/completions", kChat));
  Peer engine = c_.Accept();
  EXPECT_THAT(engine.ReceiveMessage().body, HasSubstr("\"model\":\"code\""));
  engine.Send(Plain(kAnswered));
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 200);
  EXPECT_EQ(answer.body, kAnswered);
  EXPECT_EQ(answer.Field("x-fineserve-model"), "code");
  EXPECT_EQ(Metric("fineserve_fallbacks_total{model=\"chat\",to=\"code\"}"), 1);
  EXPECT_THAT(Get("/requests", true).body,
              HasSubstr("\"model\":\"code\",\"fell_back_from\":\"chat\""));
}

TEST_F(FallbackTest, EndpointOutsideLearnsNothingOfTheClient) {
  a_.Close();
  b_.Close();
  WriteFile(Path("outside-key"), "sk-theirs\n");
  WriteFile(Path("keys"), "sk-ours name=alice\n");
  StartWith("gpt",
            Outside(Http(), "model = \"gpt-5\"\nkey = \"" +
                                Path("outside-key") + "\"\n"),
            "keys = \"" + Path("keys") + "\"\n");
  Peer client =
      Client(Post("/v1/chat/completions", kChat,
                  "Authorization: Bearer sk-ours\r\nCookie: secret\r\n"
                  "Content-Type: application/json\r\n"));
  Peer endpoint = outside_.Accept();
  const Peer::Message asked = endpoint.ReceiveMessage();
  EXPECT_THAT(asked.head, HasSubstr("POST /api/v1/chat/completions HTTP/1.1"));
  EXPECT_EQ(asked.Field("authorization"), "Bearer sk-theirs");
  EXPECT_EQ(asked.Field("content-type"), "application/json");
  EXPECT_THAT(asked.head, Not(HasSubstr("sk-ours")));
  EXPECT_THAT(asked.head, Not(HasSubstr("secret")));
  EXPECT_THAT(asked.body, HasSubstr("\"model\":\"gpt-5\""));
  endpoint.Send(
      "HTTP/1.1 200 OK\r\nSet-Cookie: theirs\r\nContent-Type: "
      "application/json\r\nContent-Length: 68\r\n\r\n"
      R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}})"
      "    ");
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 200);
  EXPECT_EQ(answer.Field("content-type"), "application/json");
  EXPECT_EQ(answer.Field("set-cookie"), "");
  EXPECT_EQ(answer.Field("x-fineserve-model"), "gpt");
  EXPECT_THAT(Get("/usage", true).body, HasSubstr("\"tokens_today\":12"));
}

TEST_F(FallbackTest, StreamOfAnEndpointOutsideComesEventByEvent) {
  StartWith("gpt", Outside(Http(), ""));
  Peer client = Client();
  std::string body = kStream;
  body.replace(body.find("chat"), 4, "gpt");
  client.Send(Post("/v1/chat/completions", body));
  Peer endpoint = outside_.Accept();
  endpoint.Answer(kStreamHead + Chunk("data: 1\n\n"));
  client.ReceiveUntil("\r\n\r\n");
  EXPECT_EQ(client.ReceiveChunk(), "data: 1\n\n");
  endpoint.Send(Chunk("data: 2\n\n") + kLastChunk);
  EXPECT_EQ(client.ReceiveChunk(), "data: 2\n\n");
}

TEST_F(FallbackTest, ClientGetsTheFirstRefusalIfAllFail) {
  a_.Close();
  b_.Close();
  StartWith("gpt", Outside(Http(), ""));
  Peer client = Client(Post("/v1/chat/completions", kChat));
  Peer endpoint = outside_.Accept();
  endpoint.Answer("HTTP/1.1 429 Too Many\r\nContent-Length: 2\r\n\r\n{}");
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 503);
  EXPECT_EQ(answer.Field("x-fineserve-reason"), "no_engine");
  EXPECT_THAT(answer.body, HasSubstr("no engine of chat"));
}

TEST_F(FallbackTest, ClientThatMayNotAskForTheFallbackGetsNone) {
  a_.Close();
  b_.Close();
  WriteFile(Path("keys"), "sk-ours name=alice models=chat\n");
  StartWith("gpt", Outside(Http(), ""), "keys = \"" + Path("keys") + "\"\n");
  EXPECT_EQ(Chat("Authorization: Bearer sk-ours\r\n").status(), 503);
  EXPECT_TRUE(outside_.IsQuiet());
}

TEST_F(FallbackTest, EndpointThatLeadsBackEndsTheCircle) {
  Start();
  const std::string self = std::to_string(port_);
  proxy_.reset();
  const std::string outside = Outside("http://127.0.0.1:" + self + "/v1", "");
  Start("", {"--listen", "127.0.0.1:" + self}, outside);
  Peer client = Client(Post("/v1/chat/completions", R"({"model":"gpt"})"));
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 502);
  EXPECT_THAT(answer.body, HasSubstr("answers with status 508"));
}

// A client does not see an engine's error while another engine can answer.
TEST_F(FallbackTest, EngineThatErrsIsReplaced) {
  b_.Close();
  ThreadedEngine errs(&a_, Manner::kErrs);
  StartWith("code", "");
  Peer client = Client(Post("/v1/chat/completions", kChat));
  Peer engine = c_.Accept();
  engine.Answer(Plain(kAnswered));
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 200);
  EXPECT_EQ(answer.Field("x-fineserve-model"), "code");
  EXPECT_GE(errs.requests(), 1);
  proxy_.reset();
}

TEST_F(FallbackTest, AdapterReachesItsModelsEnginesByItsOwnName) {
  chats_ = "adapters = [\"legal\"]\n";
  Start();
  Peer client = Client(Post("/v1/chat/completions", R"({"model":"legal"})"));
  Peer engine = AcceptChat();
  EXPECT_EQ(engine.ReceiveMessage().body, R"({"model":"legal"})");
  engine.Send(Plain(kAnswered));
  EXPECT_EQ(client.ReceiveMessage().body, kAnswered);
  EXPECT_THAT(Get("/requests", true).body, HasSubstr("\"model\":\"chat\""));
}

// A second proxy with TLS plays the endpoint.
TEST_F(FallbackTest, HttpsEndpointMustHaveAValidCertificate) {
  const Finished made =
      RunToEnd({"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                "-keyout", Path("tls.key"), "-out", Path("tls.pem")},
               {});
  ASSERT_EQ(made.code, 0) << made.err;
  Start("", {"--tls-cert", Path("tls.pem"), "--tls-key", Path("tls.key")});
  const auto endpoint = std::move(proxy_);
  const std::string port = std::to_string(port_);
  const auto ask = [&](const std::string& host, const std::string& trusted) {
    setenv("SSL_CERT_FILE", trusted.c_str(), 1);
    Start(
        "", {},
        Outside("https://" + host + ":" + port + "/v1", "model = \"code\"\n"));
    unsetenv("SSL_CERT_FILE");
    Peer client = Client(Post("/v1/chat/completions", R"({"model":"gpt"})"));
    return client;
  };
  Peer client = ask("localhost", Path("tls.pem"));
  Peer engine = c_.Accept();
  EXPECT_EQ(engine.ReceiveMessage().body, R"({"model":"code"})");
  engine.Send(Plain(kAnswered));
  EXPECT_EQ(client.ReceiveMessage().body, kAnswered);
  engine.Close();
  // A name that is not the certificate's, and an authority that is not trusted.
  EXPECT_EQ(ask("127.0.0.1", Path("tls.pem")).ReceiveMessage().status(), 503);
  EXPECT_THAT(proxy_->Stderr(), HasSubstr("TLS with 127.0.0.1 failed"));
  EXPECT_EQ(ask("localhost", "/dev/null").ReceiveMessage().status(), 503);
  EXPECT_THAT(proxy_->Stderr(), HasSubstr("self-signed certificate"));
  EXPECT_TRUE(c_.IsQuiet());
}

TEST_F(FallbackTest, KeyFileWithoutAKeyIsAMistake) {
  WriteFile(Path("outside-key"), "\n");
  WriteFleet("", Outside(Http(), "key = \"" + Path("outside-key") + "\"\n"));
  const Finished checked =
      RunToEnd({Program(), "--fleet", Path("fleet.toml"), "--check"}, {});
  EXPECT_EQ(checked.code, 2);
  EXPECT_THAT(checked.err, HasSubstr("its first line is no key for "
                                     "[[outside]] \"gpt\""));
}

}  // namespace
}  // namespace fineserve::proxy_tests

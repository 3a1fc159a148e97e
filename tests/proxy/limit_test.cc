// Limits on clients, and the answers when they are exceeded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class LimitTest : public ProxyTest {
 protected:
  Peer::Message Ask(const std::string& bytes) {
    Peer client = Client(bytes);
    return client.ReceiveMessage();
  }
};

TEST_F(LimitTest, MistakesAreReportedInOpenAisShape) {
  Start();
  struct Case {
    std::string request;
    int status;
    const char* code;
  };
  const Case cases[] = {
      {Post("/v1/completions", "{\"model\":"), 400, "bad_json"},
      {Post("/v1/completions", ""), 400, "bad_json"},
      {Post("/v1/completions", "{}"), 400, "model_missing"},
      {Post("/v1/completions", R"({"model":"gpt-5"})"), 404, "model_not_found"},
      {Post("/v1/completions", R"({"model":"code"})", "x-slo-ttft-ms: -1\r\n"),
       400, "bad_header"},
      {"GET /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", 405,
       "method_not_allowed"},
      {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found"},
      {Post("/v1/load_lora_adapter", "{}"), 404, "not_found"},
      {"GET /v1/models/no HTTP/1.1\r\nHost: x\r\n\r\n", 404, "model_not_found"},
      {"GET /health HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n", 417,
       "bad_expectation"},
      {"HELLO\r\n\r\n", 400, "bad_http"},
      {"GET /health HTTP/1.1\r\n\r\n", 400, "bad_host"},
      {"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
       "Transfer-Encoding: xchunked\r\n\r\n",
       501, "unsupported_encoding"},
      {"GET /v1/responses/../load_lora_adapter HTTP/1.1\r\nHost: x\r\n\r\n",
       400, "bad_path"},
  };
  for (const Case& c : cases) {
    const Peer::Message answer = Ask(c.request);
    EXPECT_EQ(answer.status(), c.status) << c.request;
    EXPECT_EQ(answer.Field("x-fineserve-reason"), c.code) << c.request;
    EXPECT_THAT(answer.body, StartsWith("{\"error\":{\"message\":\""));
    EXPECT_THAT(answer.body, HasSubstr(std::string("\"code\":\"") + c.code));
    EXPECT_EQ(answer.Field("x-request-id").size(), 32u);
  }
}

TEST_F(LimitTest, AConnectionOutlivesItsMistakes) {
  Start();
  Peer client = Client(Post("/v1/completions", "{"));
  EXPECT_EQ(client.ReceiveMessage().status(), 400);
  client.Send(Post("/v1/embeddings", R"({"model":"gpt-5"})"));
  EXPECT_EQ(client.ReceiveMessage().status(), 404);
  client.Send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.ReceiveMessage().body, StartsWith("{\"version\":\""));
}

TEST_F(LimitTest, LargeBodiesShareABudgetAndSmallOnesDoNotNeedIt) {
  Start("", {"--max-bodies", "2MiB"});
  const std::string large = Post(
      "/v1/completions",
      R"({"model":"code","prompt":")" + std::string(1 << 20, 'x') + R"("})",
      "Expect: 100-continue\r\n");
  const size_t body = large.find("\r\n\r\n") + 4;
  Peer first = Client(), second = Client();
  for (Peer* client : {&first, &second}) {
    client->Send(large.substr(0, body));
    client->ReceiveUntil("100 Continue\r\n\r\n");
  }
  Peer third = Client(large.substr(0, body));
  const Peer::Message refused = third.ReceiveMessage();
  EXPECT_EQ(refused.status(), 503);
  EXPECT_EQ(refused.Field("x-fineserve-reason"), "bodies_too_large");
  EXPECT_EQ(refused.Field("retry-after"), "1");
  Peer small =
      Client(Post("/v1/completions", R"({"model":"code","prompt":"x"})"));
  Peer engine = c_.Accept();
  EXPECT_EQ(engine.ReceiveMessage().body, R"({"model":"code","prompt":"x"})");
  // The engine now has the whole body, and the budget has got its part back.
  first.Send(large.substr(body));
  Peer other = c_.Accept();
  EXPECT_THAT(other.ReceiveMessage().body, EndsWith("xxx\"}"));
  other.Send(kStreamHead + Chunk("data: 1\n\n"));
  first.ReceiveUntil("data: 1");
  Peer again = Client(large);
  EXPECT_THAT(c_.Accept().ReceiveMessage().body, EndsWith("xxx\"}"));
}

TEST_F(LimitTest, KeysAreAskedForWhereModelsAre) {
  WriteFile(folder_ + "/keys", "sk-1\n");
  Start("keys = \"" + folder_ + "/keys\"\n");
  EXPECT_EQ(Get("/health").status(), 200);
  EXPECT_EQ(Get("/v1/models").status(), 401);
  const Peer::Message refused =
      Ask(Post("/v1/completions", R"({"model":"code"})",
               "Authorization: Bearer sk-2\r\n"));
  EXPECT_EQ(refused.status(), 401);
  EXPECT_EQ(refused.Field("www-authenticate"), "Bearer");
  Peer client = Client(Post("/v1/completions", R"({"model":"code"})",
                            "Authorization: Bearer sk-1\r\n"));
  Peer engine = c_.Accept();
  // Our key is not passed to the engine.
  EXPECT_EQ(engine.ReceiveMessage().Field("authorization"), "");
}

// If a stranger's SLO were used, it would be missed, and the miss would be
// counted.
TEST_F(LimitTest, OnlyTrustedKeysSayHowTheyAreServed) {
  WriteFile(folder_ + "/keys", "sk-1\nsk-2 trusted\n");
  const std::string keys = "keys = \"" + folder_ + "/keys\"\n";
  const std::string missed =
      "fineserve_slo_violation_total{model=\"code\",slo=\"ttft\"}";
  const auto ask = [&](const std::string& key) {
    Peer client =
        Client(Post("/v1/completions", R"({"model":"code","stream":true})",
                    "x-slo-ttft-ms: 0.001\r\nx-fineserve-priority: 9\r\n"
                    "Authorization: Bearer " +
                        key + "\r\n"));
    Peer engine = c_.Accept();
    engine.Answer(kStreamHead + Chunk("data: 1\n\n") + kLastChunk);
    client.ReceiveUntil(kLastChunk);
  };
  Start(keys);
  ask("sk-1");
  EXPECT_LE(Metric(missed), 0);
  ask("sk-2");
  EXPECT_EQ(Metric(missed), 1);
  EXPECT_THAT(Ask(Post("/v1/completions", R"({"model":"code"})",
                       "x-slo-ttft-ms: -1\r\nAuthorization: Bearer sk-2\r\n"))
                  .body,
              HasSubstr("bad_header"));
}

TEST_F(LimitTest, AnthropicsClientsReadErrorsInTheirOwnForm) {
  WriteFile(folder_ + "/keys", "sk-1\n");
  Start("keys = \"" + folder_ + "/keys\"\n");
  const Peer::Message stranger = Ask(Post("/v1/messages", "{}"));
  EXPECT_EQ(stranger.status(), 401);
  EXPECT_THAT(stranger.body,
              StartsWith(R"({"type":"error","error":{"type":)"
                         R"("authentication_error","message":"no valid key)"));
  const Peer::Message unknown =
      Ask(Post("/v1/messages", R"({"model":"gpt-5"})", "x-api-key: sk-1\r\n"));
  EXPECT_EQ(unknown.status(), 404);
  EXPECT_THAT(unknown.body, HasSubstr(R"({"type":"not_found_error",)"));
  EXPECT_EQ(unknown.Field("x-fineserve-reason"), "model_not_found");
}

TEST_F(LimitTest, PagesOfListedOriginsMayAsk) {
  WriteFile(folder_ + "/keys", "sk-1\n");
  Start("keys = \"" + folder_ + "/keys\"\norigins = [\"http://page:5173\"]\n");
  const std::string origin = "Origin: http://page:5173\r\n";
  const auto preflight = [&](const std::string& from) {
    return Ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + from +
               "Access-Control-Request-Method: POST\r\n"
               "Access-Control-Request-Headers: authorization\r\n\r\n");
  };
  const Peer::Message may = preflight(origin);
  EXPECT_EQ(may.status(), 204);
  EXPECT_EQ(may.Field("access-control-allow-origin"), "http://page:5173");
  EXPECT_EQ(may.Field("access-control-allow-headers"), "authorization");
  const Peer::Message may_not = preflight("Origin: http://other\r\n");
  EXPECT_EQ(may_not.status(), 401);
  EXPECT_EQ(may_not.Field("access-control-allow-origin"), "");
  // Without a key, a request may bring no body for an engine.
  const Peer::Message large = preflight(origin + "Content-Length: 1000000\r\n");
  EXPECT_EQ(large.status(), 413);
  // The page reads errors, too.
  const Peer::Message refused = Ask(Post("/v1/completions", "{}", origin));
  EXPECT_EQ(refused.status(), 401);
  EXPECT_EQ(refused.Field("access-control-allow-origin"), "http://page:5173");
  Peer client = Client(Post("/v1/completions", R"({"model":"code"})",
                            origin + "Authorization: Bearer sk-1\r\n"));
  Peer engine = c_.Accept();
  engine.Answer(
      "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\n"
      "Content-Length: 2\r\n\r\n{}");
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.body, "{}");
  EXPECT_EQ(answer.Field("access-control-allow-origin"), "http://page:5173");
  EXPECT_EQ(answer.head.find("rigin: *"), std::string::npos);
}

TEST_F(LimitTest, OddRequestsThatHttpAllowsAreServed) {
  Start();
  const Peer::Message absolute =
      Ask("\r\nGET http://proxy:1/v1/models HTTP/1.1\r\nHost: proxy:1\r\n\r\n");
  EXPECT_EQ(absolute.status(), 200);
  Peer client = Client();
  std::string post = Post("/v1/completions", R"({"model":"code"})");
  client.Send("\r\n" + post.replace(5, 0, "http://x"));
  EXPECT_THAT(c_.Accept().ReceiveMessage().head,
              StartsWith("POST /v1/completions HTTP/1.1\r\n"));
  const Peer::Message encoded =
      Ask(Post("/v1/completions", "\x1f\x8b", "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(encoded.status(), 415);
  EXPECT_EQ(encoded.Field("accept-encoding"), "identity");
  EXPECT_THAT(encoded.body, HasSubstr("without Content-Encoding"));
}

// Otherwise a page of that name, opened in an operator's browser, could read
// everything.
TEST_F(LimitTest, AdminPortAnswersToNoStrangersName) {
  Start("admin_names = [\"gpu1.example.org\"]\n");
  const auto ask = [&](const std::string& path, const std::string& host) {
    Peer admin = Admin();
    admin.Send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return admin.ReceiveMessage();
  };
  for (const char* path :
       {"/metrics", "/requests", "/", "/frames", "/logs/a"}) {
    const Peer::Message refused = ask(path, "evil.example:8001");
    EXPECT_EQ(refused.status(), 403) << path;
    EXPECT_THAT(refused.body, HasSubstr("admin_names"));
  }
  EXPECT_EQ(ask("/health", "evil.example").status(), 200);
  EXPECT_EQ(ask("/metrics", "localhost:1").status(), 200);
  EXPECT_EQ(ask("/metrics", "gpu1.example.org").status(), 200);
}

// Anthropic's clients send x-api-key; some of them also send a token.
TEST_F(LimitTest, AnthropicsPathsTakeTheirOwnFieldForTheKey) {
  WriteFile(folder_ + "/keys", "sk-1\n");
  Start("keys = \"" + folder_ + "/keys\"\n");
  const std::string body = R"({"model":"code","max_tokens":1})";
  for (const char* path :
       {"/v1/messages", "/v1/messages/count_tokens?beta=true"}) {
    for (const char* fields :
         {"X-Api-Key: sk-1\r\n", "Authorization: Bearer sk-1\r\n",
          "Authorization: Bearer theirs\r\nx-api-key: sk-1\r\n",
          "x-api-key: theirs\r\nAuthorization: Bearer sk-1\r\n"}) {
      SCOPED_TRACE(std::string(path) + " " + fields);
      Peer client = Client(Post(path, body, fields));
      Peer engine = c_.Accept();
      const Peer::Message received = engine.ReceiveMessage();
      EXPECT_EQ(received.Field("x-api-key"), "");
      EXPECT_EQ(received.Field("authorization"), "");
      engine.Send(Plain("{}"));
      ASSERT_EQ(client.ReceiveMessage().status(), 200);
    }
    EXPECT_EQ(Ask(Post(path, body, "x-api-key: sk-2\r\n")).status(), 401);
    EXPECT_EQ(Ask(Post(path, body, "x-api-key: Bearer sk-1\r\n")).status(),
              401);
    EXPECT_EQ(Ask(Post(path, body)).status(), 401);
  }
  EXPECT_EQ(Ask(Post("/v1/completions", body, "x-api-key: sk-1\r\n")).status(),
            401)
      << "OpenAI's path";
}

TEST_F(LimitTest, WithoutKeysBothFieldsAreTheEngines) {
  Start();
  Peer client =
      Client(Post("/v1/messages", R"({"model":"code","max_tokens":1})",
                  "x-api-key: one\r\nAuthorization: Bearer two\r\n"));
  const Peer::Message received = c_.Accept().ReceiveMessage();
  EXPECT_EQ(received.Field("x-api-key"), "one");
  EXPECT_EQ(received.Field("authorization"), "Bearer two");
}

TEST_F(LimitTest, HeaderBombsAreCut) {
  Start();
  const std::string bombs[] = {
      "GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(1 << 20, 'a') +
          "\r\n\r\n"};
  for (const std::string& bomb : bombs) {
    Peer client = Client();
    client.SendNow(bomb);
    EXPECT_EQ(client.ReceiveMessage().status(), 431);
  }
  EXPECT_EQ(Get("/health").status(), 200);
}

// Lines between chunks, and fields after the chunks, are not counted as body.
TEST_F(LimitTest, LinesOfChunksWithoutAnEndAreCut) {
  Start();
  for (const char* begin : {"1;", "0\r\nX: "}) {
    Peer client = Client();
    client.SendNow(std::string("GET /health HTTP/1.1\r\nHost: x\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n") +
                   begin + std::string(1 << 20, 'a'));
    EXPECT_EQ(client.ReceiveMessage().status(), 431) << begin;
  }
  EXPECT_EQ(Get("/health").status(), 200);
}

TEST_F(LimitTest, ProbesHaveNoLargeBodies) {
  Start();
  Peer client = Client(
      "GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.ReceiveMessage().status(), 413);
}

// A body is refused because of its announced length, before it is sent. A
// client that sends it anyway can still read the reason.
TEST_F(LimitTest, BodyOf100MegabytesIsRefusedAndReadable) {
  Start();
  Peer client = Client(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
      "104857600\r\n"
      "\r\n");
  const std::string block(1 << 20, 'x');
  for (int i = 0; i < 100; ++i) client.Send(block);
  EXPECT_EQ(client.ReceiveMessage().status(), 413);
}

TEST_F(LimitTest, ChunkedBodyIsCutAtTheLimit) {
  Start("", {"--max-body", "1MiB"});
  Peer client = Client(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
      "Transfer-Encoding: chunked\r\n\r\n");
  const std::string block = Chunk(std::string(1 << 18, 'x'));
  for (int i = 0; i < 5; ++i) client.Send(block);
  EXPECT_EQ(client.ReceiveMessage().status(), 413);
}

TEST_F(LimitTest, LargeBodyWithinTheLimitPasses) {
  Start();
  const std::string body =
      R"({"model":"code","prompt":")" + std::string(20 << 20, 'x') + "\"}";
  Peer client = Client(Post("/v1/completions", body));
  Peer engine = c_.Accept();
  EXPECT_EQ(engine.ReceiveMessage().body.size(), body.size());
}

TEST_F(LimitTest, OneConnectionTooManyGetsAnError) {
  Start("", {"--max-connections", "2"});
  Peer first = Client(), second = Client();
  for (Peer* peer : {&first, &second}) {
    peer->Send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(peer->ReceiveMessage().status(), 200);
  }
  Peer third = Client();
  const Peer::Message answer = third.ReceiveMessage();
  EXPECT_EQ(answer.status(), 503);
  EXPECT_EQ(answer.Field("x-fineserve-reason"), "too_many_connections");
  EXPECT_EQ(Metric("fineserve_connections_refused_total"), 1);
  first.Close();
  EXPECT_TRUE(
      process::Eventually([this] { return Get("/health").status() == 200; }));
}

// Until its first byte, each connection costs the proxy a socket and little
// memory.
TEST_F(LimitTest, TenThousandIdleConnectionsAreHeld) {
  constexpr size_t kConnections = 10'000;
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < kConnections + 200) {
    GTEST_SKIP() << "needs " << kConnections + 200 << " descriptors; ulimit -Hn"
                 << " is " << limit.rlim_max;
  }
  Start();
  std::vector<Peer> idle;
  for (size_t i = 0; i < kConnections; ++i) {
    idle.push_back(Client());
    ASSERT_TRUE(idle.back().is_open()) << i;
  }
  EXPECT_TRUE(process::Eventually(
      [this] { return Metric("fineserve_connections") > kConnections; }));
  for (size_t i : {size_t{0}, kConnections / 2, kConnections - 1}) {
    idle[i].Send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(idle[i].ReceiveMessage().status(), 200);
  }
}

}  // namespace
}  // namespace fineserve::proxy_tests

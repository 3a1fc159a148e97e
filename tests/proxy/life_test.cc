// Start, reload and end of a proxy.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <string>

#include "tests/proxy/site.h"

namespace fineserve::proxy_tests {
namespace {

using process::Eventually;
using ::testing::HasSubstr;

class LifeTest : public ProxyTest {};

TEST_F(LifeTest, ModelsOfTheFleetAreListed) {
  Start();
  const std::string models = Get("/v1/models").body;
  EXPECT_THAT(models, HasSubstr("{\"id\":\"chat\",\"object\":\"model\""));
  EXPECT_THAT(models, HasSubstr("{\"id\":\"code\""));
  for (const char* path : {"/health", "/live", "/ready", "/version"}) {
    EXPECT_EQ(Get(path).status(), 200) << path;
    EXPECT_EQ(Get(path, /*admin=*/true).status(), 200) << path;
  }
}

TEST_F(LifeTest, ThatNoDaemonSchedulesIsSaid) {
  Start();
  EXPECT_EQ(Get("/ready").body,
            "{\"ready\":true,\"scheduled\":false,"
            "\"gpus_without_daemon\":[\"any\"]}");
  EXPECT_EQ(Metric("fineserve_daemon_decides{gpu=\"\"}"), 0);
  Stream stream = Begin();
  EXPECT_EQ(Metric("fineserve_unscheduled_total{model=\"chat\"}"), 1);
}

TEST_F(LifeTest, DrainLetsStreamsEndAndTakesNoNewClient) {
  Start();
  Stream stream = Begin();
  Peer idle = Client("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.ReceiveMessage();
  proxy_->Signal(SIGTERM);
  EXPECT_TRUE(idle.IsClosed());
  EXPECT_EQ(Get("/ready", /*admin=*/true).status(), 503);
  EXPECT_EQ(Get("/live", /*admin=*/true).status(), 200);
  EXPECT_FALSE(Client().is_open());
  stream.engine.Send(Chunk("data: 2\n\n") + kLastChunk);
  EXPECT_EQ(stream.client.ReceiveChunk(), "data: 2\n\n");
  EXPECT_EQ(stream.client.Receive(5), kLastChunk);
  EXPECT_TRUE(stream.client.IsClosed());
  EXPECT_EQ(proxy_->Wait(), 0);
}

TEST_F(LifeTest, DrainIsBounded) {
  Start("drain = 1\n");
  Stream stream = Begin();
  EXPECT_EQ(proxy_->EndBy(SIGTERM), 0);
  EXPECT_THAT(proxy_->Stderr(), HasSubstr("did not end in time"));
}

TEST_F(LifeTest, SecondSignalEndsADrainAtOnce) {
  Start("drain = 3600\n");
  Stream stream = Begin();
  proxy_->Signal(SIGTERM);
  EXPECT_TRUE(Eventually(
      [this] { return Get("/ready", /*admin=*/true).status() == 503; }));
  EXPECT_EQ(proxy_->EndBy(SIGTERM), 0);
}

TEST_F(LifeTest, FleetAndKeysAreReadAgain) {
  Start();
  Stream stream = Begin();
  WriteFile(folder_ + "/keys", "sk-1\n");
  WriteFleet("keys = \"" + folder_ + "/keys\"\n",
             "[[model]]\nname = \"new\"\nslo_ttft_ms = 1\n"
             "kv_token_bytes = 1\nprofile = { base_us = 1, per_token_us = 1, "
             "per_sequence_us = 1 }\n[[engine]]\nname = \"d\"\n"
             "model = \"new\"\nurl = \"http://127.0.0.1:9\"\n");
  proxy_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([this] { return Get("/v1/models").status() == 401; }));
  Peer client = Client(
      "GET /v1/models/new HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-1\r\n"
      "\r\n");
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
  // Running requests go on.
  stream.engine.Send(Chunk("data: 2\n\n") + kLastChunk);
  EXPECT_EQ(stream.client.ReceiveChunk(), "data: 2\n\n");
}

TEST_F(LifeTest, KeysThatOthersMayReadDrawAWarning) {
  const std::string keys = folder_ + "/keys";
  WriteFile(keys, "sk-1\n");
  ASSERT_EQ(chmod(keys.c_str(), 0644), 0);
  Start("keys = \"" + keys + "\"\n");
  EXPECT_THAT(proxy_->Stderr(),
              HasSubstr("other users may read the keys in " + keys +
                        " (mode 0644): chmod 600 " + keys));
  ASSERT_EQ(chmod(keys.c_str(), 0600), 0);
  proxy_.reset();
  Start("keys = \"" + keys + "\"\n");
  EXPECT_EQ(proxy_->Stderr().find("other users"), std::string::npos);
}

TEST_F(LifeTest, KeysAreNotGivenUpUnlessTheFleetSaysSo) {
  WriteFile(folder_ + "/keys", "sk-1\n");
  Start("keys = \"" + folder_ + "/keys\"\n");
  WriteFleet("drain = 1\n");
  proxy_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([this] {
    return proxy_->Stderr().find("every client would be served") !=
           std::string::npos;
  }));
  EXPECT_EQ(Get("/v1/models").status(), 401);
  WriteFleet("open = true\n");
  proxy_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([this] { return Get("/v1/models").status() == 200; }));
}

TEST_F(LifeTest, FleetWithAMistakeChangesNothing) {
  Start();
  WriteFile(folder_ + "/fleet.toml", "[proxy]\nlisten = 7\n");
  proxy_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([this] {
    return proxy_->Stderr().find("keeping the present fleet") !=
           std::string::npos;
  }));
  EXPECT_THAT(proxy_->Stderr(), HasSubstr("fleet.toml:2: "));
  EXPECT_THAT(Get("/v1/models").body, HasSubstr("\"chat\""));
}

TEST_F(LifeTest, UnservableSetupIsNamedInOneLine) {
  Start();
  const std::string program = "/proc/" + std::to_string(proxy_->pid()) + "/exe";
  const std::string fleet = folder_ + "/fleet.toml";
  const auto run = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), program);
    return stage::RunToEnd(flags, {});
  };
  const auto taken =
      run({"--fleet", fleet, "--listen", "127.0.0.1:" + std::to_string(port_)});
  EXPECT_EQ(taken.code, 1);
  EXPECT_THAT(taken.err, HasSubstr("cannot listen on 127.0.0.1:"));
  EXPECT_EQ(run({}).code, 2);
  EXPECT_EQ(run({"--fleet", "/none.toml"}).code, 2);
  EXPECT_EQ(run({"--fleet", fleet, "--listen", "8000"}).code, 2);
  EXPECT_EQ(run({"--fleet", fleet, "--check"}).code, 0);
  WriteFleet("keys = \"/none\"\n");
  EXPECT_THAT(run({"--fleet", fleet, "--check"}).err,
              HasSubstr("cannot read keys /none"));
}

TEST_F(LifeTest, ServedRequestsAreCounted) {
  Start();
  Peer client =
      Client(Post("/v1/chat/completions", kStream, "x-slo-ttft-ms: 0.001\r\n"));
  Peer engine = AcceptChat();
  engine.Answer(kStreamHead + Chunk(": ping\n\n"));
  const std::string ttft =
      "fineserve_time_to_first_token_seconds_count{model=\"chat\"}";
  EXPECT_LE(Metric(ttft), 0);  // a comment is no token
  EXPECT_EQ(Metric("fineserve_requests_running"), 1);
  engine.Send(Chunk("data: 1\n\n") +
              Chunk("data: {\"usage\":{\"prompt_tokens\":40,"
                    "\"completion_tokens\":2}}\n\n") +
              Chunk("data: [DONE]\n\n") + kLastChunk);
  client.ReceiveUntil(kLastChunk);
  EXPECT_EQ(Metric(ttft), 1);
  EXPECT_EQ(Metric("fineserve_queue_time_seconds_count{model=\"chat\"}"), 1);
  EXPECT_EQ(Metric("fineserve_requests_total{model=\"chat\",status=\"200\"}"),
            1);
  EXPECT_EQ(Metric("fineserve_prompt_tokens_total{model=\"chat\"}"), 40);
  EXPECT_EQ(Metric("fineserve_generation_tokens_total{model=\"chat\"}"), 2);
  EXPECT_EQ(
      Metric("fineserve_slo_violation_total{model=\"chat\",slo=\"ttft\"}"), 1);
  EXPECT_LT(Metric("fineserve_bytes_per_token{model=\"chat\"}"), 4.0);
  EXPECT_EQ(Metric("fineserve_requests_running"), 0);
}

TEST_F(LifeTest, TokensThatWereNotSeenMissNoSlo) {
  Start();
  const std::string tight = "x-slo-ttft-ms: 0.001\r\nx-slo-tpot-ms: 0.001\r\n";
  const std::string usage =
      R"({"usage":{"prompt_tokens":5,"completion_tokens":3}})";
  for (const char* asked : {kStream, kChat}) {
    Peer client = Client(Post("/v1/chat/completions", asked, tight));
    Peer engine = AcceptChat();
    engine.Answer(Plain(usage));
    EXPECT_EQ(client.ReceiveMessage().body, usage);
  }
  EXPECT_EQ(Metric("fineserve_generation_tokens_total{model=\"chat\"}"), 6);
  for (const char* slo : {"ttft", "tpot"}) {
    EXPECT_LE(Metric("fineserve_slo_violation_total{model=\"chat\",slo=\"" +
                     std::string(slo) + "\"}"),
              0);
  }
  EXPECT_LE(
      Metric("fineserve_time_per_output_token_seconds_sum{model=\"chat\"}"), 0);
}

}  // namespace
}  // namespace fineserve::proxy_tests

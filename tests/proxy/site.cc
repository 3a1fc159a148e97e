#include "tests/proxy/site.h"

#include <stdio.h>

#include <fstream>
#include <utility>

#include "tools/lab/stage/figures.h"
#include "tools/lab/stage/fleet_text.h"

namespace fineserve::proxy_tests {
const char kChat[] =
    R"({"model":"chat","messages":[{"role":"user","content":"hello"}]})";
const char kStream[] =
    R"({"model":"chat","stream":true,"messages":[{"role":"user",)"
    R"("content":"hello"}]})";

const char kAnswered[] = R"({"choices":[]})";

ProxyTest::~ProxyTest() {
  if (HasFailure() && proxy_) {
    fprintf(stderr, "the proxy printed: %s\n", proxy_->Stderr().c_str());
  }
}

std::string ProxyTest::Program() {
  return process::ProgramFolder() + "/fineserve-proxy";
}

void ProxyTest::WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

void ProxyTest::WriteFleet(const std::string& settings,
                           const std::string& more) {
  stage::FleetText fleet;
  fleet.Proxy().Append(settings);
  for (const std::string name : {"chat", "code"}) {
    fleet.Model(name, {{"aliases", std::vector<std::string>{name + "-latest"}},
                       {"slo_ttft_ms", 60000},
                       {"kv_token_bytes", 131072},
                       {"profile", stage::TomlValue::Profile(8000, 110, 60)}});
    if (name == "chat") fleet.Append(chats_);
  }
  fleet.Engine("a", "chat", a_.port()).Engine("b", "chat", b_.port());
  fleet.Engine("c", "code", c_.port()).Append(more);
  fleet.WriteTo(folder_ + "/fleet.toml");
}

void ProxyTest::Start(const std::string& settings,
                      const std::vector<std::string>& flags,
                      const std::string& more) {
  WriteFleet(settings, more);
  proxy_ = std::make_unique<stage::Process>(
      process::With({Program(), "--fleet", folder_ + "/fleet.toml",
                     "--runtime-dir", folder_},
                    flags),
      stage::Process::Environment());
  const std::string line = proxy_->ReadLine();
  unsigned port = 0, admin = 0;
  ASSERT_EQ(
      sscanf(line.c_str(), "listening on 127.0.0.1:%u, admin 127.0.0.1:%u",
             &port, &admin),
      2)
      << line << proxy_->Stderr();
  port_ = static_cast<uint16_t>(port);
  admin_port_ = static_cast<uint16_t>(admin);
}

Peer::Message ProxyTest::Get(const std::string& path, bool admin) {
  Peer client = admin ? Admin() : Client();
  client.Send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
  return client.ReceiveMessage();
}

double ProxyTest::Metric(const std::string& line) {
  return stage::MetricOf(Get("/metrics", /*admin=*/true).body, line);
}

Peer ProxyTest::AcceptChat() {
  process::Eventually([this] { return !a_.IsQuiet() || !b_.IsQuiet(); });
  return a_.IsQuiet() ? b_.Accept() : a_.Accept();
}

ProxyTest::Stream ProxyTest::Begin(const std::string& target) {
  Peer client = Client(Post(target, kStream));
  Peer engine = AcceptChat();
  engine.Answer(kStreamHead + Chunk("data: 1\n\n"));
  client.ReceiveUntil("\r\n\r\n");
  EXPECT_EQ(client.ReceiveChunk(), "data: 1\n\n");
  return {std::move(client), std::move(engine)};
}

}  // namespace fineserve::proxy_tests

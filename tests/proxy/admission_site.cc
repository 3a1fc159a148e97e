#include "tests/proxy/admission_site.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <utility>

#include "tools/lab/stage/figures.h"

namespace fineserve::proxy_tests {
namespace {

using proxy::AdmissionRequest;
using proxy::Outcome;
using proxy::Verdict;

Verdict Refused() {
  Verdict verdict;
  verdict.refusal = proxy::Refusal::kDeadline;
  verdict.why = "its first token would come in 4000 ms";
  verdict.retry_after_ms = 2500;
  verdict.predicted_ttft_ms = 4000;
  return verdict;
}

Verdict Admitted(const AdmissionRequest& request) {
  Verdict verdict;
  verdict.admitted = true;
  verdict.engine = request.avoid_engine == "a" ? "b" : "a";
  return verdict;
}

uint16_t PortOf(const std::string& address) {
  return static_cast<uint16_t>(
      atoi(address.substr(address.rfind(':') + 1).c_str()));
}

}  // namespace

void ScriptedAdmission::Submit(const AdmissionRequest& request,
                               std::function<void(Verdict)> on_verdict) {
  journal_->Asked(request);
  if (request.tenant == "wait") {
    waiting_[request.id] = std::move(on_verdict);
    return;
  }
  if (request.tenant == "release") Release();
  on_verdict(request.tenant == "refuse" ? Refused() : Admitted(request));
}

void ScriptedAdmission::Cancel(uint64_t id) {
  journal_->Write("cancel " + std::to_string(id));
  waiting_.erase(id);
}

void ScriptedAdmission::FirstToken(uint64_t id) {
  journal_->Write("first " + std::to_string(id));
}

void ScriptedAdmission::Progress(uint64_t id, uint32_t output_tokens) {
  journal_->Generated(id, output_tokens);
}

void ScriptedAdmission::Finished(uint64_t id, uint32_t prompt, uint32_t output,
                                 Outcome outcome) {
  const char* const names[] = {"done", "client gone", "engine gone"};
  journal_->Write(std::string(names[static_cast<int>(outcome)]) + " " +
                  std::to_string(id) + ": " + std::to_string(prompt) + "+" +
                  std::to_string(output));
}

void ScriptedAdmission::Forwards(uint64_t id, const std::string& engine) {
  journal_->Write("forward " + std::to_string(id) + " to " + engine);
}

void ScriptedAdmission::Release() {
  for (const auto& [id, on_verdict] : waiting_) on_verdict(Admitted({}));
  waiting_.clear();
}

AdmissionSite::AdmissionSite(bool counts_prompts, const proxy::Limits& limits)
    : counts_prompts_(counts_prompts) {
  auto start = proxy::Proxy::Start(
      ProxySetup(), limits, folder_.path(), &admission_, &clock_,
      [this] { return ProxySetup(); }, {/*recent_requests=*/100});
  EXPECT_TRUE(start.ok()) << start.status();
  proxy_ = *std::move(start);
  port_ = PortOf(proxy_->listen_address());
  thread_ = std::thread([this] { proxy_->Serve(); });
}

AdmissionSite::~AdmissionSite() {
  kill(getpid(), SIGTERM);
  thread_.join();
}

proxy::Setup AdmissionSite::ProxySetup() const {
  auto fleet = std::make_shared<config::Fleet>();
  fleet->proxy.listen_port = fleet->proxy.admin_port = 0;
  fleet->proxy.drain_s = 0;
  fleet->models.resize(1);
  fleet->models[0].name = "m";
  fleet->models[0].counts_prompts = counts_prompts_;
  for (const auto& [name, at] : {std::pair{"a", &a_}, {"b", &b_}}) {
    config::FleetEngine engine;
    engine.name = name;
    engine.model = "m";
    engine.host = "127.0.0.1";
    engine.port = at->port();
    fleet->engines.push_back(engine);
  }
  return {fleet, {}};
}

Peer AdmissionSite::Ask(const std::string& tenant, const std::string& fields) {
  Peer client = Peer::To(port_);
  client.Send(Post(
      "/v1/completions", R"({"model":"m","prompt":"12345678","max_tokens":9})",
      "x-gateway-inference-fairness-id: " + tenant + "\r\n" + fields));
  return client;
}

double AdmissionSite::Metric(const std::string& line) {
  Peer admin = Peer::To(PortOf(proxy_->admin_address()));
  admin.Send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  return stage::MetricOf(admin.ReceiveMessage().body, line);
}

}  // namespace fineserve::proxy_tests

// The seam to whoever decides: what an admission is told, and when.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/proxy/proxy.h"
#include "tests/integration/process.h"
#include "tests/proxy/peer.h"

namespace fineserve::proxy_tests {
namespace {

using integration::Eventually;
using proxy::AdmissionRequest;
using proxy::Outcome;
using proxy::Verdict;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What happened, in words, and what was asked. Any thread.
class Journal {
 public:
  void Write(const std::string& event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(event);
  }
  void Asked(const AdmissionRequest& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_.push_back(request);
    events_.push_back("submit " + std::to_string(request.id));
  }
  std::vector<std::string> events() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return events_;
  }
  std::vector<AdmissionRequest> requests() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }
  bool AwaitEvents(size_t n) const {
    return Eventually([&] { return events().size() >= n; });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
  std::vector<AdmissionRequest> requests_;
};

// Decides by the tenant's name: "refuse", "wait" until a tenant "release"
// comes; others go to engine a, or b if they are to avoid a.
class ScriptedAdmission final : public proxy::Admission {
 public:
  explicit ScriptedAdmission(Journal* journal) : journal_(journal) {}

  void Submit(const AdmissionRequest& request,
              std::function<void(Verdict)> on_verdict) override {
    journal_->Asked(request);
    if (request.tenant == "wait") {
      waiting_[request.id] = std::move(on_verdict);
      return;
    }
    if (request.tenant == "release") Release();
    on_verdict(request.tenant == "refuse" ? Refused() : Admitted(request));
  }
  void Cancel(uint64_t id) override {
    journal_->Write("cancel " + std::to_string(id));
    waiting_.erase(id);
  }
  void FirstToken(uint64_t id) override {
    journal_->Write("first " + std::to_string(id));
  }
  void Finished(uint64_t id, uint32_t prompt, uint32_t output,
                Outcome outcome) override {
    const char* const names[] = {"done", "client gone", "engine gone"};
    journal_->Write(std::string(names[static_cast<int>(outcome)]) + " " +
                    std::to_string(id) + ": " + std::to_string(prompt) + "+" +
                    std::to_string(output));
  }
  void SetFleet(std::shared_ptr<const config::Fleet>) override {}
  bool Ready() const override { return false; }

 private:
  static Verdict Refused() {
    Verdict verdict;
    verdict.refusal = proxy::Refusal::kDeadline;
    verdict.why = "its first token would come in 4000 ms";
    verdict.retry_after_ms = 2500;
    verdict.predicted_ttft_ms = 4000;
    return verdict;
  }
  static Verdict Admitted(const AdmissionRequest& request) {
    Verdict verdict;
    verdict.admitted = true;
    verdict.engine = request.avoid_engine == "a" ? "b" : "a";
    return verdict;
  }
  void Release() {
    for (const auto& [id, on_verdict] : waiting_) on_verdict(Admitted({}));
    waiting_.clear();
  }

  Journal* const journal_;
  std::map<uint64_t, std::function<void(Verdict)>> waiting_;
};

// The proxy in a thread of this process.
class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() {
    auto start = proxy::Proxy::Start(Setup(), proxy::Limits(), &admission_,
                                     &clock_, [this] { return Setup(); });
    EXPECT_TRUE(start.ok()) << start.status();
    proxy_ = *std::move(start);
    const std::string at = proxy_->listen_address();
    port_ = static_cast<uint16_t>(atoi(at.substr(at.rfind(':') + 1).c_str()));
    thread_ = std::thread([this] { proxy_->Serve(); });
  }
  ~AdmissionTest() override {
    kill(getpid(), SIGTERM);
    thread_.join();
  }

  proxy::Setup Setup() const {
    auto fleet = std::make_shared<config::Fleet>();
    fleet->proxy.listen_port = fleet->proxy.admin_port = 0;
    fleet->proxy.drain_s = 0;
    fleet->models.resize(1);
    fleet->models[0].name = "m";
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

  Peer Ask(const std::string& tenant, const std::string& fields = "") {
    Peer client = Peer::To(port_);
    client.Send(
        Post("/v1/completions",
             R"({"model":"m","prompt":"12345678","max_tokens":9})",
             "x-gateway-inference-fairness-id: " + tenant + "\r\n" + fields));
    return client;
  }

  Listener a_, b_;
  RealClock clock_;
  Journal journal_;
  ScriptedAdmission admission_{&journal_};
  std::unique_ptr<proxy::Proxy> proxy_;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST_F(AdmissionTest, IsToldWhatTheRequestAsksFor) {
  Peer client = Ask("refuse",
                    "x-slo-ttft-ms: 250\r\nx-slo-tpot-ms: 40\r\n"
                    "x-fineserve-priority: 2\r\nx-fineserve-degrade: 1\r\n");
  client.ReceiveMessage();
  ASSERT_EQ(journal_.requests().size(), 1u);
  const AdmissionRequest asked = journal_.requests()[0];
  EXPECT_NE(asked.id, 0u);
  EXPECT_EQ(asked.model, "m");
  EXPECT_EQ(asked.prompt_tokens, 2u);  // 8 bytes
  EXPECT_EQ(asked.max_tokens, 9u);
  EXPECT_EQ(asked.slo_ttft_us, 250'000);
  EXPECT_EQ(asked.slo_tpot_us, 40'000);
  EXPECT_EQ(asked.priority, 2);
  EXPECT_EQ(asked.tenant, "refuse");
  EXPECT_TRUE(asked.degrade_ok);
}

TEST_F(AdmissionTest, RefusalIsAnAnswerThatSaysWhenToComeBack) {
  Peer client = Ask("refuse");
  const Peer::Message answer = client.ReceiveMessage();
  EXPECT_EQ(answer.status(), 429);
  EXPECT_EQ(answer.Field("retry-after"), "3");
  EXPECT_EQ(answer.Field("retry-after-ms"), "2500");
  EXPECT_EQ(answer.Field("x-fineserve-reason"), "slo_unreachable");
  EXPECT_EQ(answer.Field("x-fineserve-predicted-ttft-ms"), "4000");
  EXPECT_THAT(answer.body, HasSubstr("its first token would come in 4000 ms"));
  EXPECT_THAT(journal_.events(), ElementsAre("submit 1"));
  EXPECT_TRUE(a_.IsQuiet() && b_.IsQuiet());
}

TEST_F(AdmissionTest, ClientThatLeavesTheQueueIsCancelled) {
  Peer client = Ask("wait");
  ASSERT_TRUE(journal_.AwaitEvents(1));
  client.Close();
  ASSERT_TRUE(journal_.AwaitEvents(2));
  EXPECT_THAT(journal_.events(), ElementsAre("submit 1", "cancel 1"));
  EXPECT_TRUE(a_.IsQuiet());
}

TEST_F(AdmissionTest, RequestGoesToItsEngineWhenItsVerdictComes) {
  Peer waits = Ask("wait");
  ASSERT_TRUE(journal_.AwaitEvents(1));
  EXPECT_TRUE(a_.IsQuiet());
  Peer releases = Ask("release");
  Peer first = a_.Accept(), second = a_.Accept();
  for (Peer* engine : {&first, &second}) {
    engine->ReceiveMessage();
    engine->Send(Plain("{}"));
  }
  EXPECT_EQ(waits.ReceiveMessage().status(), 200);
  EXPECT_EQ(releases.ReceiveMessage().status(), 200);
}

TEST_F(AdmissionTest, IsToldOfTheFirstTokenAndTheEnd) {
  Peer client = Ask("x");
  Peer engine = a_.Accept();
  engine.ReceiveMessage();
  engine.Send(Plain(
      R"({"usage":{"prompt_tokens":3,"total_tokens":9,"completion_tokens":6}})"));
  client.ReceiveMessage();
  ASSERT_TRUE(journal_.AwaitEvents(3));
  EXPECT_THAT(journal_.events(),
              ElementsAre("submit 1", "first 1", "done 1: 3+6"));
}

TEST_F(AdmissionTest, EngineThatFailsIsToldAndAvoided) {
  Peer client = Ask("x");
  Peer failing = a_.Accept();
  failing.ReceiveMessage();
  failing.Close();
  Peer engine = b_.Accept();
  engine.ReceiveMessage();
  engine.Send(Plain("{}"));
  EXPECT_EQ(client.ReceiveMessage().status(), 200);
  ASSERT_TRUE(journal_.AwaitEvents(5));
  EXPECT_THAT(journal_.events(),
              ElementsAre("submit 1", "engine gone 1: 0+0", "submit 2",
                          "first 2", "done 2: 0+0"));
  EXPECT_EQ(journal_.requests()[1].avoid_engine, "a");
}

TEST_F(AdmissionTest, ClientThatLeavesAnAnswerIsTold) {
  Peer client = Ask("x");
  Peer engine = a_.Accept();
  engine.ReceiveMessage();
  engine.Send(kStreamHead + Chunk("data: 1\n\n") + Chunk("data: 2\n\n"));
  client.ReceiveUntil("data: 2");
  client.Close();
  ASSERT_TRUE(journal_.AwaitEvents(3));
  EXPECT_THAT(journal_.events(),
              ElementsAre("submit 1", "first 1", "client gone 1: 0+2"));
}

TEST_F(AdmissionTest, DecidesWhetherTheProxyIsReady) {
  Peer client = Peer::To(port_);
  client.Send("GET /ready HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.ReceiveMessage().status(), 503);
}

// The proxy ends with a request in its queue: nothing is left behind.
TEST_F(AdmissionTest, EndOfTheProxyCancelsWhatWaits) {
  Peer client = Ask("wait");
  ASSERT_TRUE(journal_.AwaitEvents(1));
  kill(getpid(), SIGTERM);
  EXPECT_EQ(client.ReceiveAll(), "");
  ASSERT_TRUE(journal_.AwaitEvents(2));
  EXPECT_EQ(journal_.events()[1], "cancel 1");
}

}  // namespace
}  // namespace fineserve::proxy_tests

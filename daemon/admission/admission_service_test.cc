#include "daemon/admission/admission_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fineserve::admission {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kEpoch = 77;
constexpr char kProxy[] = "proxy";
// A slab of the pool holds 4 blocks of 16 tokens, and the pool has 8 of them.
constexpr uint32_t kSlabTokens = 64;
constexpr uint64_t kPoolTokens = 8 * kSlabTokens;

config::Fleet TwoModels() {
  config::Fleet fleet;
  config::FleetModel small;
  small.name = "small";
  small.slo_ttft_ms = 500;
  small.kv_token_bytes = 256;
  small.profile = {1000, 10, 10};
  config::FleetModel large = small;
  large.name = "large";
  fleet.models = {small, large};
  fleet.engines = {{"small-a", "small", "127.0.0.1", 1, "", {}},
                   {"large-a", "large", "127.0.0.1", 2, "GPU-1", {}},
                   {"far-away", "large", "127.0.0.1", 3, "GPU-2", {}}};
  return fleet;
}

// A pool of 8 slabs; one proxy; engines "small-a" and "large-a".
class AdmissionServiceTest : public ::testing::Test {
 protected:
  AdmissionServiceTest() { clock_.AdvanceNs(1'000'000'000); }

  template <typename Body>
  void Send(uint64_t request, Body body, uint64_t epoch = kEpoch,
            const std::string& peer = kProxy) {
    service_->Handle(peer, wire::Encode(epoch, request, std::move(body)));
    service_->Settle();
  }
  static wire::HelloT Greeting(const std::vector<std::string>& engines,
                               bool serves = true) {
    wire::HelloT hello;
    for (const std::string& name : engines) {
      hello.engines.push_back(std::make_unique<wire::EngineHealthT>());
      hello.engines.back()->name = name;
      hello.engines.back()->serves = serves;
    }
    return hello;
  }
  void Hello(bool serves = true, const std::string& peer = kProxy) {
    wire::HelloT hello = Greeting({"small-a", "large-a"}, serves);
    Send(0, std::move(hello), 0, peer);
    EXPECT_EQ(Next().body.type, wire::Body::Welcome);
  }
  static wire::SubmitT Ask(const std::string& model, uint32_t prompt_tokens) {
    wire::SubmitT submit;
    submit.model = model;
    submit.prompt_tokens = prompt_tokens;
    submit.max_tokens = 1;
    return submit;
  }
  static wire::ProgressT ProgressOf(std::vector<uint64_t> requests,
                                    std::vector<uint32_t> output_tokens) {
    wire::ProgressT progress;
    progress.requests = std::move(requests);
    progress.output_tokens = std::move(output_tokens);
    return progress;
  }
  // What the service said first of what has not been looked at; a message
  // without a body if that is nothing.
  wire::MessageT Next() {
    if (sent_.empty()) return {};
    const auto message = wire::Decode(sent_.front().second);
    sent_.pop_front();
    return message.ok() ? *message : wire::MessageT();
  }
  wire::VerdictT Verdict(uint64_t request) {
    const wire::MessageT message = Next();
    EXPECT_EQ(message.request, request);
    const wire::VerdictT* verdict = message.body.AsVerdict();
    EXPECT_NE(verdict, nullptr);
    return verdict == nullptr ? wire::VerdictT() : *verdict;
  }
  std::string Refusal() {
    const wire::MessageT message = Next();
    const wire::RefusedT* refused = message.body.AsRefused();
    EXPECT_NE(refused, nullptr);
    return refused == nullptr ? "" : refused->why;
  }
  // "small-a" has an active view that may grow to `cap_tokens`.
  void ServeFromThePool(uint64_t cap_tokens = kPoolTokens) {
    view_of_small_a_ = EngineKv::View{cap_tokens, cap_tokens, 0};
  }
  std::vector<EngineKv> AskPool(const std::vector<EngineNeed>& needs) {
    std::vector<EngineKv> all(needs.size());
    for (size_t i = 0; i < needs.size(); ++i) {
      if (needs[i].name == "small-a") all[i].view = view_of_small_a_;
    }
    return all;
  }
  wire::ModelsT Models() {
    Send(0, wire::ModelsQueryT(), 0, "fsctl");
    const wire::MessageT message = Next();
    const wire::ModelsT* models = message.body.AsModels();
    EXPECT_NE(models, nullptr);
    return models == nullptr ? wire::ModelsT() : *models;
  }

  ManualClock clock_;
  absl::optional<EngineKv::View> view_of_small_a_;
  std::deque<std::pair<std::string, std::string>> sent_;
  std::unique_ptr<AdmissionService> service_ = *AdmissionService::Create(
      TwoModels(), "GPU-1234", kEpoch,
      [this](const std::vector<EngineNeed>& needs) { return AskPool(needs); },
      &clock_,
      [this](const std::string& peer, absl::string_view bytes) {
        sent_.emplace_back(peer, std::string(bytes));
        return true;
      });
};

TEST_F(AdmissionServiceTest, HelloTellsTheEpochAndThePolicy) {
  wire::HelloT hello;
  Send(0, std::move(hello), 0);
  const wire::MessageT message = Next();
  EXPECT_EQ(message.epoch, kEpoch);
  ASSERT_NE(message.body.AsWelcome(), nullptr);
  EXPECT_EQ(message.body.AsWelcome()->policy, "fineserve");
}

TEST_F(AdmissionServiceTest, RequestGoesToAnEngineOfItsModelOnThisGpu) {
  Hello();
  Send(1, Ask("large", 100));
  const wire::VerdictT verdict = Verdict(1);
  EXPECT_TRUE(verdict.admitted);
  EXPECT_EQ(verdict.engine, "large-a");
  EXPECT_EQ(verdict.predicted_ttft_ms, 2u);
}

TEST_F(AdmissionServiceTest, WhoHasNotGreetedThisDaemonIsRefused) {
  Send(1, Ask("small", 100));
  EXPECT_THAT(Refusal(), HasSubstr("greeted"));
  Hello();
  Send(1, Ask("small", 100), kEpoch - 1);
  EXPECT_THAT(Refusal(), HasSubstr("greeted")) << "of an earlier daemon";
  EXPECT_EQ(Models().models[0]->admitted, 0u);
}

TEST_F(AdmissionServiceTest, EngineThatNobodySaysServesGetsNothing) {
  Hello(false);
  Send(1, Ask("small", 100));
  const wire::VerdictT verdict = Verdict(1);
  EXPECT_FALSE(verdict.admitted);
  EXPECT_EQ(verdict.refusal, wire::Refusal::kNoEngine);
}

TEST_F(AdmissionServiceTest, EngineThatEndsLetsItsRequestsWaitForItsReturn) {
  Hello();
  Hello(false);
  Send(1, Ask("small", 100));
  EXPECT_THAT(sent_, IsEmpty());
  Hello();
  EXPECT_TRUE(Verdict(1).admitted);
}

TEST_F(AdmissionServiceTest, RequestThatWaitedInVainForAnEngineIsToldSo) {
  Hello();
  Hello(false);
  Send(1, Ask("small", 100));
  clock_.AdvanceNs(600'000'000);
  service_->Settle();
  const wire::VerdictT verdict = Verdict(1);
  EXPECT_EQ(verdict.refusal, wire::Refusal::kNoEngine);
  EXPECT_THAT(verdict.why, HasSubstr("no engine of its model serves now"));
}

TEST_F(AdmissionServiceTest, RequestThatWaitedTooLongAtTheProxyIsRejected) {
  Hello();
  wire::SubmitT late = Ask("small", 100);
  late.waited_us = 600'000;
  Send(1, std::move(late));
  const wire::VerdictT verdict = Verdict(1);
  EXPECT_EQ(verdict.refusal, wire::Refusal::kDeadline);
  EXPECT_THAT(verdict.why, HasSubstr("602 ms"));
}

TEST_F(AdmissionServiceTest, KvLimitsWhatRunsTogether) {
  ServeFromThePool();
  Hello();
  // 512 tokens in all; half of them, its output and a block for the tail.
  Send(1, Ask("small", 300));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("small", 300));
  EXPECT_THAT(sent_, IsEmpty()) << "it waits";
  wire::FinishedT finished;
  finished.output_tokens = 1;
  Send(1, std::move(finished));
  EXPECT_TRUE(Verdict(2).admitted);
}

TEST_F(AdmissionServiceTest, WhatNoEngineCanEverHoldIsRejectedAtOnce) {
  ServeFromThePool(kSlabTokens);  // one slab
  Hello();
  Send(1, Ask("small", kSlabTokens));
  EXPECT_EQ(Verdict(1).refusal, wire::Refusal::kTooLong);
}

TEST_F(AdmissionServiceTest, RunningRequestsOfAnEarlierDaemonTakeTheirKv) {
  ServeFromThePool();
  wire::HelloT hello = Greeting({"small-a"});
  auto running = std::make_unique<wire::RunningRequestT>();
  running->request = 9;
  running->engine = "small-a";
  running->prompt_tokens = 300;
  running->max_tokens = 1;
  hello.running.push_back(std::move(running));
  Send(0, std::move(hello), 0);
  Next();
  Send(10, Ask("small", 300));
  EXPECT_THAT(sent_, IsEmpty());
  Send(9, wire::FinishedT());
  EXPECT_TRUE(Verdict(10).admitted);
}

// Their ends were told to nobody: the proxy took this daemon for another one.
TEST_F(AdmissionServiceTest, ProxyThatGreetsAnewHasNoRequestsButThoseItNames) {
  ServeFromThePool();
  Hello();
  Send(1, Ask("small", 300));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("small", 300));  // waits
  wire::HelloT hello = Greeting({"small-a"});
  hello.anew = true;
  Send(0, std::move(hello), 0);
  Next();
  EXPECT_EQ(Models().models[0]->engines[0]->running, 0u);
  EXPECT_EQ(Models().models[0]->queued, 0u);
  Send(2, Ask("small", 300));
  EXPECT_TRUE(Verdict(2).admitted);
}

// It is here for the second time, admitted the first.
TEST_F(AdmissionServiceTest, WaitingRequestThatFinishedIsDecidedNoMore) {
  ServeFromThePool();
  Hello();
  Send(1, Ask("small", 300));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("small", 300));
  Send(2, wire::FinishedT());
  EXPECT_EQ(Models().models[0]->queued, 0u);
  Send(1, wire::FinishedT());
  EXPECT_EQ(Models().models[0]->engines[0]->running, 0u);
}

// 512 tokens; beside the first answer there is room for a prompt of 80 as long
// as it is expected to have 256 tokens.
TEST_F(AdmissionServiceTest, AnswerThatGrowsBeyondItsExpectationKeepsItsKv) {
  ServeFromThePool();
  Hello();
  wire::SubmitT first = Ask("small", 100);
  first.max_tokens = 0;
  Send(1, std::move(first));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("small", 80));
  EXPECT_TRUE(Verdict(2).admitted);
  Send(2, wire::FinishedT());
  Send(0, ProgressOf({7, 1}, {1, 340}));
  Send(3, Ask("small", 80));
  EXPECT_THAT(sent_, IsEmpty());
  Send(1, wire::FinishedT());
  EXPECT_TRUE(Verdict(3).admitted);
  EXPECT_EQ(Models().models[0]->engines[0]->held_tokens, 81u);
}

TEST_F(AdmissionServiceTest, ProgressOfUnequalListsIsRefusedWhole) {
  Hello();
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  const uint64_t held = Models().models[0]->engines[0]->held_tokens;
  Send(0, ProgressOf({1, 1}, {1}));
  EXPECT_THAT(Refusal(), HasSubstr("progress of 2 requests with 1 counts"));
  EXPECT_EQ(Models().models[0]->engines[0]->held_tokens, held);
}

TEST_F(AdmissionServiceTest, ProgressIsOfThePeersOwnRequestsOnly) {
  Hello();
  Hello(true, "other");
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  const uint64_t held = Models().models[0]->engines[0]->held_tokens;
  Send(0, ProgressOf({1}, {1000}), kEpoch, "other");
  EXPECT_EQ(Models().models[0]->engines[0]->held_tokens, held);
}

TEST_F(AdmissionServiceTest, RunningRequestsAreAdoptedWithWhatTheyGenerated) {
  ServeFromThePool();
  Hello();
  wire::HelloT hello;
  auto running = std::make_unique<wire::RunningRequestT>();
  running->request = 9;
  running->engine = "small-a";
  running->prompt_tokens = 100;
  running->max_tokens = 400;
  running->output_tokens = 300;
  hello.running.push_back(std::move(running));
  Send(0, std::move(hello), 0);
  Next();
  EXPECT_EQ(Models().models[0]->engines[0]->held_tokens, 100u + 300 + 64);
}

TEST_F(AdmissionServiceTest, SilentProxyIsForgottenWithItsRequests) {
  ServeFromThePool();
  Hello();
  Send(1, Ask("small", 300));
  Verdict(1);
  Hello(true, "other");
  wire::SubmitT patient = Ask("small", 300);
  patient.slo_ttft_us = 10'000'000;
  Send(1, std::move(patient), kEpoch, "other");
  EXPECT_THAT(sent_, IsEmpty());
  clock_.AdvanceNs(AdmissionService::kPeerPatienceNs - 1);
  Hello(true, "other");
  EXPECT_EQ(Models().models[0]->engines[0]->running, 1u);
  clock_.AdvanceNs(1);
  service_->Settle();
  EXPECT_TRUE(Verdict(1).admitted) << "the other's";
  EXPECT_EQ(Models().models[0]->engines[0]->running, 1u);
}

TEST_F(AdmissionServiceTest, CancelledRequestGetsNoVerdict) {
  ServeFromThePool();
  Hello();
  Send(1, Ask("small", 300));
  Verdict(1);
  Send(2, Ask("small", 300));
  Send(2, wire::CancelT());
  Send(1, wire::FinishedT());
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(Models().models[0]->cancelled, 1u);
}

TEST_F(AdmissionServiceTest, DrainedEngineFinishesWhatItHasAndGetsNoMore) {
  Hello();
  Send(1, Ask("small", 100));
  Verdict(1);
  wire::DrainT drain;
  drain.engine = "small-a";
  drain.on = true;
  Send(5, std::move(drain), 0, "fsctl");
  EXPECT_NE(Next().body.AsDone(), nullptr);
  Send(2, Ask("small", 100));
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(Models().models[0]->engines[0]->running, 1u);
  EXPECT_TRUE(Models().models[0]->engines[0]->drains);
  drain = {};
  drain.engine = "small-a";
  Send(6, std::move(drain), 0, "fsctl");
  EXPECT_NE(Next().body.AsDone(), nullptr);
  EXPECT_TRUE(Verdict(2).admitted);
}

TEST_F(AdmissionServiceTest, DrainOfAnUnknownEngineSaysSo) {
  wire::DrainT drain;
  drain.engine = "far-away";
  Send(5, std::move(drain), 0, "fsctl");
  EXPECT_THAT(Refusal(), HasSubstr("no engine \"far-away\""));
}

TEST_F(AdmissionServiceTest, MistakesOfAProxyAreNamed) {
  Hello();
  Send(1, Ask("unknown", 1));
  EXPECT_THAT(Refusal(), HasSubstr("no model \"unknown\""));
  Send(3, wire::WelcomeT());
  EXPECT_THAT(Refusal(), HasSubstr("does not take this"));
  service_->Handle(kProxy, "rubbish");
  EXPECT_THAT(Refusal(), HasSubstr("no message of ours"));
}

TEST_F(AdmissionServiceTest, RequestThatIsAskedTwiceIsToldOnce) {
  Hello();
  Send(2, Ask("small", 100));
  EXPECT_TRUE(Verdict(2).admitted);
  Send(2, Ask("small", 100));
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(Models().models[0]->engines[0]->running, 1u);
}

TEST_F(AdmissionServiceTest, NewsOfUnknownRequestsAreIgnored) {
  Hello();
  Send(5, wire::CancelT());
  Send(5, wire::FirstTokenT());
  Send(0, ProgressOf({5}, {100}));
  Send(5, wire::FinishedT());
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(AdmissionServiceTest, RequestsAreToldWithTheirAgeAndSlack) {
  Hello();
  Send(1, Ask("small", 100));
  Verdict(1);
  clock_.AdvanceNs(200'000'000);
  wire::RequestsQueryT query;
  query.most = 10;
  Send(0, std::move(query), 0, "fsctl");
  const wire::MessageT message = Next();
  const wire::RequestsT* told = message.body.AsRequests();
  ASSERT_NE(told, nullptr);
  ASSERT_EQ(told->requests.size(), 1u);
  EXPECT_EQ(told->requests[0]->engine, "small-a");
  EXPECT_EQ(told->requests[0]->age_ms, 200u);
  EXPECT_EQ(told->requests[0]->slack_ms, 300);
  EXPECT_EQ(told->total, 1u);
}

TEST_F(AdmissionServiceTest, ItWakesForSilentPeersAndForDeadlines) {
  EXPECT_EQ(service_->NextWakeNs(), UINT64_MAX);
  Hello();
  EXPECT_EQ(service_->NextWakeNs(),
            clock_.NowNs() + AdmissionService::kPeerPatienceNs);
  Hello(false);
  Send(1, Ask("small", 100));
  EXPECT_LE(service_->NextWakeNs(), clock_.NowNs() + 500'000'000);
}

}  // namespace
}  // namespace fineserve::admission

// Tests of a proxy's requests.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "daemon/fineserved/admission/admission_fixture.h"

namespace fineserve::admission {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(AdmissionServiceTest, RequestGoesToAnEngineOfItsModelOnThisGpu) {
  Hello();
  Send(1, Ask("large", 100));
  const wire::VerdictT verdict = Verdict(1);
  EXPECT_TRUE(verdict.admitted);
  EXPECT_EQ(verdict.engine, "large-a");
  EXPECT_EQ(verdict.predicted_ttft_ms, 2u);
}

TEST_F(AdmissionServiceTest, RequestThatNoEngineCouldServeIsRefused) {
  Hello();
  Hello(false);
  Send(1, Ask("small", 100));
  clock_.AdvanceNs(600'000'000);
  service_->Settle();
  const wire::VerdictT verdict = Verdict(1);
  EXPECT_EQ(verdict.refusal, wire::Refusal::kNoEngine);
  EXPECT_THAT(verdict.why, HasSubstr("no engine of its model serves now"));
  EXPECT_EQ(verdict.predicted_ttft_ms, 0u) << "not known";
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

// The proxy learns at once that its request waits, and can ask other daemons.
TEST_F(AdmissionServiceTest, ProxyLearnsThatItsRequestWaits) {
  ServeFromThePool();
  Hello();
  wire::SubmitT submit = Ask("small", 300);
  submit.tell_waits = true;
  Send(1, submit);
  EXPECT_TRUE(Verdict(1).admitted) << "and nothing else";
  Send(2, submit);
  const wire::MessageT reported = Next();
  EXPECT_EQ(reported.request, 2u);
  ASSERT_NE(reported.body.AsWaits(), nullptr);
  EXPECT_GT(reported.body.AsWaits()->start_us, 0u);
  const wire::WelcomeT full = Hello();
  EXPECT_EQ(full.waits.at(1)->model, "small");
  EXPECT_TRUE(full.waits.at(1)->full);
  EXPECT_GT(full.waits.at(1)->wait_us, 0u);
  // Another daemon has admitted both requests.
  wire::CancelT elsewhere;
  elsewhere.elsewhere = true;
  Send(2, elsewhere);
  Send(1, elsewhere);
  EXPECT_FALSE(Hello().waits.at(1)->full);
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(AdmissionServiceTest, KvLimitsWhatRunsTogether) {
  ServeFromThePool();
  Hello();
  // The pool has 512 tokens; each request takes its 300 prompt tokens, an
  // output token and a block for its tail.
  Send(1, Ask("small", 300));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("small", 300));
  EXPECT_THAT(sent_, IsEmpty()) << "it waits";
  Finish(1, 1);
  EXPECT_TRUE(Verdict(2).admitted);
}

TEST_F(AdmissionServiceTest, VerdictSaysWhatTheRequestWaitedForAndHowLong) {
  ServeFromThePool();
  Hello();
  Send(1, Ask("small", 300));
  wire::VerdictT verdict = Verdict(1);
  EXPECT_EQ(verdict.waited_for, wire::WaitedFor::kNothing);
  EXPECT_EQ(verdict.waited_us, 0u);
  Send(2, Ask("small", 300));
  EXPECT_THAT(sent_, IsEmpty()) << "it waits";
  clock_.AdvanceNs(20'000'000);
  Send(1, wire::FinishedT());
  verdict = Verdict(2);
  EXPECT_TRUE(verdict.admitted);
  EXPECT_EQ(verdict.waited_for, wire::WaitedFor::kKv);
  EXPECT_EQ(verdict.waited_us, 20'000u);
}

TEST_F(AdmissionServiceTest, RequestThatNoEngineCanEverHoldIsRejectedAtOnce) {
  ServeFromThePool(kSlabTokens);  // one slab
  Hello();
  Send(1, Ask("small", kSlabTokens));
  EXPECT_EQ(Verdict(1).refusal, wire::Refusal::kTooLong);
}

// Requests that wait for both engines start in one round. Each takes its
// prompt, an output token and a block for its tail.
TEST_F(AdmissionServiceTest, TwoEnginesAreNotPromisedTheSameSlabsInOneRound) {
  ShareThePool();
  Hello();
  Hello(false);
  for (uint64_t id = 1; id <= 40; ++id) {
    Send(id, Ask(id % 2 == 0 ? "small" : "large", 47));
  }
  EXPECT_THAT(sent_, IsEmpty());
  Hello();
  sent_.clear();
  const wire::ModelsT models = Models();
  EXPECT_EQ(models.models[0]->engines[0]->running +
                models.models[1]->engines[0]->running,
            kPoolTokens / 64);
}

TEST_F(AdmissionServiceTest, TailsOfThoseThatStartInOneRoundAreKeptFree) {
  ServeFromThePool();
  Hello();
  Hello(false);
  for (uint64_t id = 1; id <= 20; ++id) Send(id, Ask("small", 47));
  Hello();
  sent_.clear();
  EXPECT_EQ(Models().models[0]->engines[0]->running, kPoolTokens / 64);
}

// Requests of another engine that start in a round leave room for the requests
// that wait here.
TEST_F(AdmissionServiceTest, PoolLearnsWhatWaitsForAnEngineThatCanStartIt) {
  ServeFromThePool();
  Hello();
  Send(1, Ask("small", 300));
  EXPECT_TRUE(Verdict(1).admitted);
  Send(2, Ask("small", 300));
  EXPECT_EQ(asked_[0].promised_tokens, 300u + 1 + 16);
  EXPECT_EQ(asked_[0].wanted_tokens, 317u + 300);
  Hello(false);
  EXPECT_EQ(asked_[0].wanted_tokens, 317u) << "it no longer serves";
}

// The prompt would fit alone, so it waits for the running ones to end.
TEST_F(AdmissionServiceTest, PromptThatFitsAloneWaitsForThoseThatRun) {
  ServeFromThePool();
  Hello();
  for (uint64_t id = 1; id <= 4; ++id) {
    Send(id, Ask("small", 47));
    EXPECT_TRUE(Verdict(id).admitted);
  }
  Send(5, Ask("small", kPoolTokens - 17));
  EXPECT_THAT(sent_, IsEmpty());
  for (uint64_t id = 1; id <= 4; ++id) Send(id, wire::FinishedT());
  EXPECT_TRUE(Verdict(5).admitted);
}

// The request was sent twice, and admitted the first time.
TEST_F(AdmissionServiceTest, WaitingRequestThatFinishedGetsNoDecision) {
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

// Only the daemon that was asked first counts the waiting request, because
// fsctl adds up the daemons' counts.
TEST_F(AdmissionServiceTest, TiedRequestCountsWhereItWasAskedFirst) {
  ServeFromThePool();
  Hello();
  Send(1, Ask("small", kPoolTokens - 17));
  EXPECT_TRUE(Verdict(1).admitted);
  for (const uint64_t id : {2, 3}) {
    wire::SubmitT submit = Ask("small", 100);
    submit.asked_before = id == 3;
    Send(id, std::move(submit));
  }
  EXPECT_EQ(Models().models[0]->queued, 1u);
  EXPECT_EQ(Models().models[0]->queued_tokens, 100u);
  EXPECT_EQ(TotalRequests(), 2u) << "one runs, one waits";
  Send(1, wire::FinishedT());
  EXPECT_TRUE(Verdict(2).admitted);
  EXPECT_TRUE(Verdict(3).admitted);
  EXPECT_EQ(Models().models[0]->queued, 0u);
  EXPECT_EQ(TotalRequests(), 2u) << "both run here";
}

// The pool has 512 tokens. Beside the first answer, a prompt of 80 fits while
// that answer is expected to have 256 tokens.
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
  Send(0, ProgressOf({{7, 1}, {1, 340}}));
  Send(3, Ask("small", 80));
  EXPECT_THAT(sent_, IsEmpty());
  Send(1, wire::FinishedT());
  EXPECT_TRUE(Verdict(3).admitted);
  EXPECT_EQ(Models().models[0]->engines[0]->held_tokens, 81u + 16);
}

TEST_F(AdmissionServiceTest, ProgressIsOfThePeersOwnRequestsOnly) {
  Hello();
  Hello(true, "other");
  Send(1, Ask("small", 100));
  EXPECT_TRUE(Verdict(1).admitted);
  const uint64_t held = Models().models[0]->engines[0]->held_tokens;
  Send(0, ProgressOf({{1, 1000}}), kEpoch, "other");
  EXPECT_EQ(Models().models[0]->engines[0]->held_tokens, held);
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

TEST_F(AdmissionServiceTest, RequestThatIsAskedTwiceIsDecidedOnce) {
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
  Send(0, ProgressOf({{5, 100}}));
  Send(5, wire::FinishedT());
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(AdmissionServiceTest, RequestsAreShownWithTheirAgeAndSlack) {
  Hello();
  wire::SubmitT asked = Ask("small", 100);
  asked.id = "mine";
  Send(1, std::move(asked));
  Verdict(1);
  clock_.AdvanceNs(200'000'000);
  wire::RequestsQueryT query;
  query.most = 10;
  Send(0, std::move(query), 0, "fsctl");
  const wire::MessageT message = Next();
  const wire::RequestsT* reported = message.body.AsRequests();
  ASSERT_NE(reported, nullptr);
  ASSERT_EQ(reported->requests.size(), 1u);
  EXPECT_EQ(reported->requests[0]->engine, "small-a");
  EXPECT_EQ(reported->requests[0]->id, "mine");
  EXPECT_EQ(reported->requests[0]->age_ms, 200u);
  EXPECT_EQ(reported->requests[0]->slack_ms, 300);
  EXPECT_EQ(reported->total, 1u);
}

}  // namespace
}  // namespace fineserve::admission

#include "daemon/contract/wire/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>

#include "daemon/contract/wire/terms.h"
#include "daemon/contract/wire/verdict_codes.h"

namespace fineserve::wire {
namespace {

using ::testing::HasSubstr;

SubmitT Request() {
  SubmitT submit;
  submit.model = "llama";
  submit.prompt_tokens = 812;
  submit.max_tokens = 64;
  submit.waited_us = 1500;
  submit.slo_ttft_us = 800'000;
  submit.priority = -2;
  submit.tenant = "team-a";
  submit.degrade_ok = true;
  return submit;
}

TEST(MessageTest, SubmitComesBackAsItWas) {
  const auto message = Decode(Encode(7, 42, Request()));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->epoch, 7u);
  EXPECT_EQ(message->request, 42u);
  const SubmitT* submit = message->body.AsSubmit();
  ASSERT_NE(submit, nullptr);
  EXPECT_EQ(submit->model, "llama");
  EXPECT_EQ(submit->prompt_tokens, 812u);
  EXPECT_EQ(submit->priority, -2);
  EXPECT_EQ(submit->tenant, "team-a");
  EXPECT_TRUE(submit->degrade_ok);
  EXPECT_EQ(message->body.AsVerdict(), nullptr);
}

ReportT ReportOf(uint64_t host_bytes, bool here) {
  ReportT report;
  report.host_bytes = host_bytes;
  report.engines.push_back(std::make_unique<EngineReportT>());
  report.engines[0]->here = here;
  return report;
}

TEST(MessageTest, HostMemoryAndProcessesComeBackAsTheyWere) {
  const auto message = Decode(Encode(7, 42, ReportOf(1ull << 40, true)));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->body.AsReport()->host_bytes, 1ull << 40);
  EXPECT_TRUE(message->body.AsReport()->engines[0]->here);
  PlanNoticeT notice;
  notice.plan = std::make_unique<PlanT>();
  notice.plan->places.push_back(std::make_unique<PlannedPlaceT>());
  notice.plan->places[0]->no_rest = true;
  const auto decoded = Decode(Encode(7, 42, std::move(notice)));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(decoded->body.AsPlanNotice()->plan->places[0]->no_rest);
}

// An older daemon's report has the same bytes, without the fields that the
// daemon does not know.
TEST(MessageTest, ReportOfAnOlderDaemonKnowsNoHostMemory) {
  const std::string older = Encode(7, 42, ReportOf(0, false));
  EXPECT_LT(older.size(), Encode(7, 42, ReportOf(1, true)).size());
  const auto message = Decode(older);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->body.AsReport()->host_bytes, 0u);
  EXPECT_FALSE(message->body.AsReport()->engines[0]->here);
  EXPECT_EQ(message->body.AsReport()->engines[0]->process_bytes, 0u);
}

TEST(MessageTest, AnotherVersionIsRefusedNamingBoth) {
  MessageT message;
  message.version = kWireVersion + 1;
  message.body.Set(CancelT());
  const auto decoded = Decode(Encode(message));
  EXPECT_TRUE(absl::IsFailedPrecondition(decoded.status()));
  EXPECT_THAT(std::string(decoded.status().message()),
              HasSubstr("speaks version 4 of the admission protocol, this "
                        "program 3"));
}

TEST(MessageTest, MessageWithoutABodyIsRefused) {
  MessageT message;
  message.version = kWireVersion;
  EXPECT_TRUE(absl::IsInvalidArgument(Decode(Encode(message)).status()));
}

TEST(MessageTest, EmptyAndForeignBytesAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Decode("").status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(Decode(std::string(64, '\xff')).status()));
}

// A message that is damaged in up to 8 places is refused or read as some
// message, and nothing outside its bytes is touched (the sanitizers look).
TEST(MessageTest, DamagedBytesAreNeverReadBeyondTheirEnd) {
  const std::string good = Encode(7, 42, Request());
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good.substr(0, 1 + random() % good.size());
    for (uint32_t n = random() % 8; n > 0; --n) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    Decode(bytes).IgnoreError();
  }
}

TEST(TermsTest, TermsComeBackAsTheyWere) {
  verdict::Terms terms;
  terms.prompt_tokens = 812;
  terms.max_tokens = 64;
  terms.slo_ttft_us = 800'000;
  terms.slo_tpot_us = 50'000;
  terms.priority = -2;
  terms.tenant = "team-a";
  terms.degrade_ok = true;
  SubmitT submit;
  SetTerms(terms, &submit);
  EXPECT_EQ(TermsOf(submit), terms);
}

TEST(TermsTest, AnyNumbersOfAPeerMakeTerms) {
  SubmitT submit;
  submit.slo_ttft_us = submit.slo_tpot_us = UINT64_MAX;
  const verdict::Terms terms = TermsOf(submit);
  EXPECT_EQ(terms.prompt_tokens, 1u);
  EXPECT_EQ(terms.slo_ttft_us, int64_t{1} << 50);
  EXPECT_EQ(terms.slo_tpot_us, int64_t{1} << 50);
}

TEST(TermsTest, RequestThatRunsKeepsItsSizesAndItsTenant) {
  verdict::Terms terms;
  terms.prompt_tokens = 812;
  terms.max_tokens = 64;
  terms.tenant = "team-a";
  RunningRequestT running;
  SetTerms(terms, &running);
  EXPECT_EQ(TermsOf(running), terms);
}

TEST(VerdictCodesTest, CodeOfANewerDaemonMeansTheNearestKnown) {
  EXPECT_EQ(MeaningOf(Refusal::kTooLong), verdict::Refusal::kTooLong);
  EXPECT_EQ(MeaningOf(WaitedFor::kKv), verdict::WaitedFor::kKv);
  EXPECT_EQ(MeaningOf(static_cast<Refusal>(99)), verdict::Refusal::kNoEngine);
  EXPECT_EQ(MeaningOf(static_cast<WaitedFor>(99)), verdict::WaitedFor::kTurn);
}

}  // namespace
}  // namespace fineserve::wire

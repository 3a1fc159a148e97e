#include "daemon/proxy/admission/demand_book.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "daemon/contract/wire/message.h"

namespace fineserve::proxy {
namespace {

constexpr uint64_t kMsNs = 1'000'000;

// A model "m" whose TTFT SLO is 500 ms.
class DemandBookTest : public ::testing::Test {
 protected:
  DemandBookTest() {
    clock_.AdvanceNs(1'000 * kMsNs);
    model_.name = "m";
    model_.slo_ttft_ms = 500;
  }

  AdmissionRequest Request(uint64_t id, const std::string& avoid = "") const {
    AdmissionRequest request;
    request.id = id;
    request.model = "m";
    request.prompt_tokens = 10;
    request.avoid_engine = avoid;
    request.arrived_ns = clock_.NowNs();
    return request;
  }
  void Submit(uint64_t id, const std::string& avoid = "") {
    book_.Submitted(Request(id, avoid), model_);
  }
  void FirstTokenAfter(uint64_t id, uint64_t ms) {
    clock_.AdvanceNs(ms * kMsNs);
    book_.FirstToken(id);
  }
  wire::ModelDemandT Demand() const {
    wire::HelloT hello;
    book_.Tell(&hello);
    return hello.demand.empty() ? wire::ModelDemandT() : *hello.demand[0];
  }
  // "on time/late".
  std::string Judged() const {
    const wire::ModelDemandT demand = Demand();
    return std::to_string(demand.on_time) + "/" + std::to_string(demand.late);
  }

  ManualClock clock_;
  config::FleetModel model_;
  DemandBook book_{&clock_};
};

TEST_F(DemandBookTest, RequestIsCountedFromItsArrivalToItsAnswer) {
  EXPECT_EQ(Demand().model, "") << "nothing was asked for";
  Submit(1);
  EXPECT_EQ(Demand().model, "m");
  EXPECT_EQ(Demand().arrived, 1u);
  EXPECT_EQ(Demand().prompt_tokens, 10u);
  FirstTokenAfter(1, 100);
  EXPECT_EQ(Demand().answered, 0u);
  book_.Finished(1, 7, Outcome::kDone);
  EXPECT_EQ(Demand().answered, 1u);
  EXPECT_EQ(Demand().output_tokens, 7u);
  EXPECT_EQ(Judged(), "1/0");
  EXPECT_EQ(book_.open(), 0u);
}

TEST_F(DemandBookTest, FirstTokenIsOnTimeUntilTheSloOfItsModel) {
  Submit(1);
  FirstTokenAfter(1, 500);
  EXPECT_EQ(Judged(), "1/0");
  Submit(2);
  FirstTokenAfter(2, 501);
  EXPECT_EQ(Judged(), "1/1");
  book_.FirstToken(2);
  EXPECT_EQ(Judged(), "1/1") << "a request is judged once";
}

TEST_F(DemandBookTest, SloOfTheRequestGoesBeforeItsModels) {
  AdmissionRequest hasty = Request(1), patient = Request(2);
  hasty.slo_ttft_us = 50'000;
  patient.slo_ttft_us = INT64_MAX;
  book_.Submitted(hasty, model_);
  book_.Submitted(patient, model_);
  FirstTokenAfter(1, 51);
  EXPECT_EQ(Judged(), "0/1");
  FirstTokenAfter(2, 3'600'000);
  EXPECT_EQ(Judged(), "1/1");
}

TEST_F(DemandBookTest, RequestThatIsTriedAgainArrivedOnce) {
  Submit(1);
  book_.Finished(1, 0, Outcome::kEngineGone);
  EXPECT_EQ(Judged(), "0/0") << "its next attempt may be in time";
  Submit(2, "a");
  FirstTokenAfter(2, 100);
  book_.Finished(2, 7, Outcome::kDone);
  EXPECT_EQ(Demand().arrived, 1u);
  EXPECT_EQ(Demand().prompt_tokens, 10u);
  EXPECT_EQ(Demand().answered, 1u);
  EXPECT_EQ(Judged(), "1/0");
}

TEST_F(DemandBookTest, RequestThatNoEngineAnsweredIsLate) {
  Submit(1);
  book_.Finished(1, 0, Outcome::kEngineGone);
  Submit(2, "a");
  book_.Finished(2, 0, Outcome::kEngineGone);
  EXPECT_EQ(Judged(), "0/1");
}

TEST_F(DemandBookTest, AnswerThatBrokeOffIsJudgedByItsFirstTokenAlone) {
  Submit(1);
  FirstTokenAfter(1, 100);
  book_.Finished(1, 3, Outcome::kEngineGone);
  Submit(2, "a");
  FirstTokenAfter(2, 100);
  book_.Finished(2, 3, Outcome::kEngineGone);
  EXPECT_EQ(Judged(), "2/0");
  EXPECT_EQ(Demand().answered, 0u);
  EXPECT_EQ(Demand().output_tokens, 0u);
}

TEST_F(DemandBookTest, RefusedIsLateAndACancelledOneIsNeither) {
  Submit(1);
  book_.Refused(1);
  EXPECT_EQ(Judged(), "0/1");
  Submit(2);
  book_.Left(2);
  Submit(3);
  book_.Finished(3, 0, Outcome::kClientGone);
  EXPECT_EQ(Judged(), "0/1");
  EXPECT_EQ(Demand().arrived, 3u);
  EXPECT_EQ(book_.open(), 0u);
}

TEST_F(DemandBookTest, AnswerWithoutAFirstTokenIsNeitherOnTimeNorLate) {
  Submit(1);
  clock_.AdvanceNs(60'000 * kMsNs);
  book_.Finished(1, 40, Outcome::kDone);
  EXPECT_EQ(Judged(), "0/0");
  EXPECT_EQ(Demand().output_tokens, 40u);
}

TEST_F(DemandBookTest, NewsOfUnknownRequestsAreIgnored) {
  Submit(1);
  book_.Refused(9);
  book_.Left(9);
  book_.FirstToken(9);
  book_.Finished(9, 5, Outcome::kDone);
  EXPECT_EQ(book_.open(), 1u);
  EXPECT_EQ(Judged(), "0/0");
  EXPECT_EQ(Demand().answered, 0u);
}

}  // namespace
}  // namespace fineserve::proxy

#include "daemon/proxy/admission/stopped_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace fineserve::proxy {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSecondNs = 1'000'000'000;

// Model m has two engines that start on request, and model n one that always
// runs.
class StoppedModelsTest : public ::testing::Test {
 protected:
  StoppedModelsTest() {
    clock_.AdvanceNs(100 * kSecondNs);
    config::Fleet fleet;
    fleet.models.resize(2);
    fleet.models[0].name = "m";
    fleet.models[1].name = "n";
    for (const char* name : {"a", "b", "n"}) {
      config::FleetEngine& engine = fleet.engines.emplace_back();
      engine.name = name;
      engine.on_request = engine.name != "n";
      engine.model = engine.on_request ? "m" : "n";
    }
    stopped_.SetFleet(std::make_shared<const config::Fleet>(fleet));
  }

  void Add(uint64_t id, int64_t slo_ttft_us = 0) {
    AdmissionRequest request;
    request.id = id;
    request.model = "m";
    request.arrived_ns = clock_.NowNs();
    request.slo_ttft_us = slo_ttft_us;
    stopped_.Add(request,
                 [this, id](Verdict verdict) { verdicts_[id] = verdict; });
  }

  // Returns the number of requests that the engines of m are started for, after
  // a turn.
  uint64_t Wanted() {
    stopped_.Turn({});
    return stopped_.Demand().at("a").waiting;
  }

  ManualClock clock_;
  std::set<std::string> serving_, by_hand_;
  StoppedModels stopped_{
      &clock_,
      [this](const std::string& engine) { return serving_.count(engine) != 0; },
      [this](const std::string& engine) {
        return by_hand_.count(engine) != 0;
      }};
  std::map<uint64_t, Verdict> verdicts_;
};

TEST_F(StoppedModelsTest, ModelIsStoppedWhileNoneOfItsEnginesServes) {
  EXPECT_TRUE(stopped_.IsStopped("m"));
  EXPECT_FALSE(stopped_.IsStopped("n")) << "its engine is always to run";
  EXPECT_FALSE(stopped_.IsStopped("unknown"));
  serving_ = {"b"};
  EXPECT_FALSE(stopped_.IsStopped("m"));
}

TEST_F(StoppedModelsTest, EnginesThatAnOperatorStoppedAreNotWaitedFor) {
  Add(1);
  by_hand_ = {"a"};
  EXPECT_TRUE(stopped_.IsStopped("m")) << "b can be started";
  EXPECT_EQ(stopped_.Turn({}).size(), 0u);
  by_hand_ = {"a", "b"};
  EXPECT_FALSE(stopped_.IsStopped("m"));
  EXPECT_EQ(stopped_.Turn({}).size(), 1u) << "it is decided without a start";
}

TEST_F(StoppedModelsTest, RequestWaitsForTheEngineAndItsSloBeginsThen) {
  stopped_.HearStarts({{"a", 30}});
  Add(1);
  Add(2, 60'000'000);
  EXPECT_EQ(stopped_.Demand().at("a").waiting, 2u);
  EXPECT_EQ(stopped_.Demand().at("b").waiting, 2u) << "either would do";
  clock_.AdvanceNs(9 * kSecondNs);
  EXPECT_TRUE(stopped_.Turn({}).empty());
  EXPECT_TRUE(verdicts_.empty());
  serving_ = {"a"};
  const auto ready = stopped_.Turn({});
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_EQ(ready[0].request.arrived_ns, 109 * kSecondNs);
  EXPECT_EQ(ready[1].request.arrived_ns, 100 * kSecondNs)
      << "its own SLO counts from its arrival";
  Verdict admitted;
  admitted.admitted = true;
  ready[0].on_verdict(admitted);
  EXPECT_TRUE(verdicts_[1].admitted);
  EXPECT_EQ(verdicts_[1].waited_for, WaitedFor::kStart);
  EXPECT_EQ(verdicts_[1].waited_us, 9'000'000u);
  EXPECT_EQ(verdicts_[1].slo_begins_ns, 109 * kSecondNs);
  EXPECT_EQ(stopped_.Demand().at("a").waiting, 0u);
}

TEST_F(StoppedModelsTest, CancelledRequestIsNotWaitedFor) {
  Add(1);
  stopped_.Cancel(1);
  EXPECT_EQ(stopped_.Demand().at("a").waiting, 0u);
  serving_ = {"a"};
  EXPECT_TRUE(stopped_.Turn({}).empty());
}

TEST_F(StoppedModelsTest, RequestWhoseOwnSloIsShorterIsRefusedAndStartsIt) {
  stopped_.HearStarts({{"a", 30}, {"b", 40}});
  Add(1, 5'000'000);
  ASSERT_EQ(verdicts_.count(1), 1u);
  EXPECT_EQ(verdicts_[1].refusal, Refusal::kDeadline);
  EXPECT_EQ(verdicts_[1].retry_after_ms, 30'000u);
  EXPECT_THAT(verdicts_[1].why, HasSubstr("takes about 30 s"));
  EXPECT_EQ(Wanted(), 1u);
  clock_.AdvanceNs(59 * kSecondNs);
  EXPECT_EQ(Wanted(), 1u) << "another engine may have to start before it";
  clock_.AdvanceNs(2 * kSecondNs);
  EXPECT_EQ(Wanted(), 0u);
}

TEST_F(StoppedModelsTest, EngineIsWantedUntilOneServesOrItsStartsFail) {
  stopped_.HearStarts({{"a", 30}});
  Add(1, 5'000'000);
  EXPECT_EQ(Wanted(), 1u);
  serving_ = {"b"};
  EXPECT_EQ(Wanted(), 0u);
  serving_ = {};
  Add(2, 5'000'000);
  EXPECT_EQ(Wanted(), 1u);
  stopped_.HearStarts({{"a", -12}, {"b", -12}});
  EXPECT_EQ(Wanted(), 0u);
}

TEST_F(StoppedModelsTest, RequestIsRefusedOnceTheStartNoLongerHoldsItsOwnSlo) {
  stopped_.HearStarts({{"a", 30}});
  Add(1, 40'000'000);
  clock_.AdvanceNs(10 * kSecondNs);
  stopped_.HearStarts({{"a", 30}});  // another start went before
  stopped_.Turn({});
  EXPECT_TRUE(verdicts_.empty());
  clock_.AdvanceNs(kSecondNs);
  stopped_.Turn({});
  ASSERT_EQ(verdicts_.count(1), 1u);
  EXPECT_EQ(verdicts_[1].refusal, Refusal::kDeadline);
  EXPECT_THAT(verdicts_[1].why, HasSubstr("waited 11 s, and its SLO is 40 s"));
  EXPECT_EQ(Wanted(), 1u) << "the next one finds it serving";
}

TEST_F(StoppedModelsTest, RequestsAreRefusedWhenTheStartsOfAllEnginesFail) {
  stopped_.HearStarts({{"a", -12}, {"b", 0}});
  Add(1);
  EXPECT_TRUE(stopped_.Turn({}).empty());
  EXPECT_TRUE(verdicts_.empty()) << "b may start";
  stopped_.HearStarts({{"a", -12}, {"b", -20}});
  EXPECT_TRUE(stopped_.Turn({}).empty());
  ASSERT_EQ(verdicts_.count(1), 1u);
  EXPECT_EQ(verdicts_[1].refusal, Refusal::kNoEngine);
  EXPECT_EQ(verdicts_[1].retry_after_ms, 12'000u);
  EXPECT_THAT(verdicts_[1].why, HasSubstr("engine a has failed to serve"));
}

TEST_F(StoppedModelsTest, WithoutFsctlUpRequestsAreRefusedAfterAWhile) {
  Add(1);
  clock_.AdvanceNs(StoppedModels::kUpPatienceNs - 1);
  stopped_.Turn({});
  EXPECT_TRUE(verdicts_.empty());
  clock_.AdvanceNs(1);
  stopped_.Turn({});
  ASSERT_EQ(verdicts_.count(1), 1u);
  EXPECT_THAT(verdicts_[1].why, HasSubstr("no fsctl up"));
}

TEST_F(StoppedModelsTest, EngineIsIdleSinceItsLastRequestCameOrEnded) {
  clock_.AdvanceNs(5 * kSecondNs);
  EXPECT_DOUBLE_EQ(stopped_.Demand().at("a").idle_s, 5);
  stopped_.Asked("m");
  EXPECT_DOUBLE_EQ(stopped_.Demand().at("a").idle_s, 0);
  clock_.AdvanceNs(7 * kSecondNs);
  stopped_.Turn({{"a", 1}});
  EXPECT_DOUBLE_EQ(stopped_.Demand().at("a").idle_s, 0);
  EXPECT_DOUBLE_EQ(stopped_.Demand().at("b").idle_s, 7)
      << "its replica runs it";
  clock_.AdvanceNs(7 * kSecondNs);
  stopped_.Turn({{"a", 0}});
  EXPECT_DOUBLE_EQ(stopped_.Demand().at("a").idle_s, 7);
  stopped_.Asked("m");
  EXPECT_DOUBLE_EQ(stopped_.Demand().at("b").idle_s, 0) << "either may get it";
  EXPECT_EQ(stopped_.Demand().count("n"), 0u);
}

}  // namespace
}  // namespace fineserve::proxy

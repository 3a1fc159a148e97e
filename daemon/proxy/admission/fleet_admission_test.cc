#include "daemon/proxy/admission/fleet_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/wire/message.h"

namespace fineserve::proxy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kEpoch = 5;
constexpr double kPerTokenUs = 100;

config::FleetEngine Engine(const std::string& name, const std::string& gpu,
                           double target_rate = 0) {
  config::FleetEngine engine;
  engine.name = name;
  engine.model = "m";
  engine.gpu = gpu;
  engine.target_rate = target_rate;
  return engine;
}

config::Fleet FleetOf(std::vector<config::FleetEngine> engines) {
  config::Fleet fleet;
  fleet.models.resize(1);
  fleet.models[0].name = "m";
  fleet.models[0].profile = config::StepProfile{.per_token_us = kPerTokenUs};
  fleet.engines = std::move(engines);
  return fleet;
}

// Two GPUs whose daemons are this test.
class FleetAdmissionTest : public ::testing::Test {
 protected:
  FleetAdmissionTest() { clock_.AdvanceNs(1'000'000'000); }

  void Use(config::Fleet fleet) {
    admission_ = std::make_unique<FleetAdmission>(Share(fleet), &clock_);
    admission_->ForEachGpu(
        [this](const std::string& gpu, DaemonAdmission* its) {
          gpus_[gpu] = its;
          its->SetSend([this, gpu](absl::string_view bytes) {
            const wire::MessageT message = *wire::Decode(bytes);
            if (message.body.AsSubmit() != nullptr) asked_.push_back(gpu);
            if (message.body.AsHello() == nullptr) {
              told_[gpu].push_back(message);
            }
            return true;
          });
        });
  }
  void UseTwo(double rate_a = 0, double rate_b = 0) {
    Use(FleetOf({Engine("a", "A", rate_a), Engine("b", "B", rate_b)}));
    Welcome("A");
    Welcome("B");
  }
  static std::shared_ptr<const config::Fleet> Share(config::Fleet fleet) {
    return std::make_shared<const config::Fleet>(std::move(fleet));
  }

  template <typename Body>
  void Receive(const std::string& gpu, uint64_t request, Body body) {
    gpus_.at(gpu)->Receive(wire::Encode(kEpoch, request, std::move(body)));
  }
  void Welcome(const std::string& gpu, uint64_t wait_us = 0) {
    wire::WelcomeT welcome;
    welcome.waits.push_back(std::make_unique<wire::ModelWaitT>());
    welcome.waits[0]->model = "m";
    welcome.waits[0]->wait_us = wait_us;
    Receive(gpu, 0, std::move(welcome));
  }
  void Decide(const std::string& gpu, uint64_t request,
              wire::Refusal refusal = wire::Refusal::kNone) {
    wire::VerdictT verdict;
    verdict.admitted = refusal == wire::Refusal::kNone;
    verdict.engine = verdict.admitted ? gpu == "A" ? "a" : "b" : "";
    verdict.refusal = refusal;
    verdict.why = "because of " + gpu;
    Receive(gpu, request, std::move(verdict));
  }
  AdmissionRequest Request(uint32_t prompt_tokens = 10) {
    AdmissionRequest request;
    request.id = ++last_;
    request.model = "m";
    request.prompt_tokens = prompt_tokens;
    request.arrived_ns = clock_.NowNs();
    return request;
  }
  void Submit(const AdmissionRequest& request) {
    admission_->Submit(request, [this, id = request.id](Verdict v) {
      verdicts_.emplace_back(id, std::move(v));
    });
  }
  // How many of `count` requests each GPU is asked about.
  std::map<std::string, int> Split(int count) {
    asked_.clear();
    for (int i = 0; i < count; ++i) Submit(Request());
    std::map<std::string, int> split;
    for (const std::string& gpu : asked_) ++split[gpu];
    return split;
  }

  ManualClock clock_;
  std::unique_ptr<FleetAdmission> admission_;
  std::map<std::string, DaemonAdmission*> gpus_;
  std::map<std::string, std::vector<wire::MessageT>> told_;
  std::vector<std::string> asked_;  // GPUs, by request
  std::vector<std::pair<uint64_t, Verdict>> verdicts_;
  uint64_t last_ = 0;
};

using Counts = std::map<std::string, int>;

TEST_F(FleetAdmissionTest, TargetRatesSplitRequestsEvenlyInTime) {
  UseTwo(3, 1);
  EXPECT_EQ(Split(40), (Counts{{"A", 30}, {"B", 10}}));
  for (size_t i = 0; i + 4 <= asked_.size(); ++i) {
    EXPECT_EQ(std::count(asked_.begin() + i, asked_.begin() + i + 4, "B"), 1);
  }
}

TEST_F(FleetAdmissionTest, EngineWithoutARateIsAskedOnlyInNeed) {
  UseTwo(2, 0);
  EXPECT_EQ(Split(9), (Counts{{"A", 9}}));
  Decide("A", last_, wire::Refusal::kQueueFull);
  EXPECT_EQ(asked_.back(), "B");
}

TEST_F(FleetAdmissionTest, WithoutRatesTheShortestWaitWins) {
  UseTwo();
  Welcome("A", 5'000);
  Welcome("B", 2'000);
  // B's wait grows by 1,000 µs with each of 10 tokens.
  Split(4);
  EXPECT_THAT(asked_, ElementsAre("B", "B", "B", "A"));
  // What waits is worked off.
  Welcome("A", 5'000);
  Welcome("B", 6'000);
  clock_.AdvanceNs(5'500'000);
  Split(1);
  EXPECT_THAT(asked_, ElementsAre("A"));
}

TEST_F(FleetAdmissionTest, LeastLoadCountsOutstandingTokensInstead) {
  config::Fleet fleet = FleetOf({Engine("a", "A"), Engine("b", "B")});
  fleet.proxy.least_load = true;
  Use(std::move(fleet));
  Welcome("A", 0);
  Welcome("B", 9'000'000);
  Submit(Request(1000));
  Decide("A", last_);
  Split(1);
  EXPECT_THAT(asked_, ElementsAre("B"));
}

TEST_F(FleetAdmissionTest, RefusedByOneIsAskedOfTheNext) {
  UseTwo(1, 0);
  Submit(Request());
  clock_.AdvanceNs(30'000'000);
  Decide("A", last_, wire::Refusal::kDeadline);
  EXPECT_THAT(asked_, ElementsAre("A", "B"));
  EXPECT_EQ(told_["B"].back().body.AsSubmit()->waited_us, 30'000u);
  EXPECT_THAT(verdicts_, IsEmpty());
  Decide("B", last_, wire::Refusal::kQueueFull);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_EQ(verdicts_[0].second.why, "because of B");
}

TEST_F(FleetAdmissionTest, GpuWithoutADaemonGetsNothingAndIsOwedNothing) {
  Use(FleetOf({Engine("a", "A", 1), Engine("b", "B", 1)}));
  gpus_.at("A")->GoOn();
  Welcome("B");
  EXPECT_EQ(Split(10), (Counts{{"B", 10}}));
  EXPECT_TRUE(admission_->Ready());
  Welcome("A");
  EXPECT_EQ(Split(10), (Counts{{"A", 5}, {"B", 5}}));
}

TEST_F(FleetAdmissionTest, WithoutAnyDaemonOneAdmitsAlone) {
  Use(FleetOf({Engine("a", "A"), Engine("b", "B")}));
  gpus_.at("A")->GoOn();
  gpus_.at("B")->GoOn();
  Submit(Request());
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_TRUE(verdicts_[0].second.admitted);
}

TEST_F(FleetAdmissionTest, EngineThatDoesNotAnswerOrFailedOnceIsAvoided) {
  UseTwo(9, 1);
  gpus_.at("A")->SetHealth("a", false);
  EXPECT_FALSE(admission_->Serves("a"));
  EXPECT_EQ(Split(5), (Counts{{"B", 5}}));
  gpus_.at("A")->SetHealth("a", true);
  asked_.clear();
  AdmissionRequest again = Request();
  again.avoid_engine = "a";
  Submit(again);
  EXPECT_THAT(asked_, ElementsAre("B"));
}

TEST_F(FleetAdmissionTest, WhatHappensIsToldTheDaemonThatAdmitted) {
  UseTwo(1, 0);
  Submit(Request());
  Decide("A", last_, wire::Refusal::kQueueFull);
  Decide("B", last_);
  told_.clear();
  admission_->FirstToken(last_);
  admission_->Finished(last_, 10, 5, Outcome::kDone);
  admission_->FirstToken(last_);
  ASSERT_EQ(told_["B"].size(), 2u);
  EXPECT_NE(told_["B"][0].body.AsFirstToken(), nullptr);
  EXPECT_EQ(told_["B"][1].body.AsFinished()->output_tokens, 5u);
  EXPECT_THAT(told_["A"], IsEmpty());
}

TEST_F(FleetAdmissionTest, CancelledWhileItWaitsIsAnsweredByNobody) {
  UseTwo(1, 0);
  Submit(Request());
  admission_->Cancel(last_);
  EXPECT_NE(told_["A"].back().body.AsCancel(), nullptr);
  Decide("A", last_, wire::Refusal::kQueueFull);
  EXPECT_THAT(asked_, ElementsAre("A"));
  EXPECT_THAT(verdicts_, IsEmpty());
}

TEST_F(FleetAdmissionTest, FleetThatIsReadAgainMayHaveOtherGpus) {
  UseTwo();
  admission_->SetFleet(Share(FleetOf({Engine("b", "B"), Engine("c", "C")})));
  ASSERT_EQ(gpus_.count("C"), 1u) << "told of";
  Welcome("B", 50'000);
  Welcome("C", 90'000);
  Split(1);
  EXPECT_THAT(asked_, ElementsAre("B")) << "A, which waits for nothing, is out";
}

TEST_F(FleetAdmissionTest, ModelThatNobodyServesIsRefused) {
  UseTwo();
  AdmissionRequest request = Request();
  request.model = "other";
  Submit(request);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_EQ(verdicts_[0].second.refusal, Refusal::kNoEngine);
}

}  // namespace
}  // namespace fineserve::proxy

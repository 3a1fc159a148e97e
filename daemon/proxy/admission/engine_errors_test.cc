#include "daemon/proxy/admission/engine_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

namespace fineserve::proxy {
namespace {

class BreakerTest : public ::testing::Test {
 protected:
  void Fail(uint32_t times) {
    for (uint32_t i = 0; i < times; ++i) breaker_.Failed(now_ns_);
  }
  bool Lets() const { return breaker_.Lets(now_ns_); }
  void Open() {
    Fail(Breaker::kMostInARow);
    ASSERT_TRUE(breaker_.is_open());
  }
  // Lets the rest pass, and sends the request that is the trial.
  void Try(uint64_t rest_ns) {
    now_ns_ += rest_ns - 1;
    ASSERT_FALSE(Lets());
    ++now_ns_;
    ASSERT_TRUE(Lets());
    breaker_.Sent(now_ns_);
  }

  uint64_t now_ns_ = 1'000'000'000;
  Breaker breaker_;
};

TEST_F(BreakerTest, OpensAfterFailuresInARow) {
  Fail(Breaker::kMostInARow - 1);
  breaker_.Answered();
  Fail(Breaker::kMostInARow - 1);
  EXPECT_TRUE(Lets());
  Fail(1);
  EXPECT_FALSE(Lets());
}

TEST_F(BreakerTest, OpensOnceHalfOfTheRequestsFail) {
  for (uint32_t i = 0; i + 2 < Breaker::kJudged; i += 2) {
    breaker_.Answered();
    Fail(1);
    ASSERT_TRUE(Lets()) << i;
  }
  breaker_.Answered();
  Fail(1);
  EXPECT_FALSE(Lets());
}

TEST_F(BreakerTest, LetsOneInAfterItsRestAndClosesOnItsAnswer) {
  Open();
  Try(Breaker::kLeastRestNs);
  EXPECT_FALSE(Lets()) << "a second one beside the trial";
  breaker_.Answered();
  EXPECT_FALSE(breaker_.is_open());
  EXPECT_TRUE(Lets());
  Fail(Breaker::kMostInARow - 1);
  EXPECT_TRUE(Lets()) << "what failed before is forgotten";
}

TEST_F(BreakerTest, FailedTrialsDoubleTheRestUpToAMinute) {
  Open();
  uint64_t rest_ns = Breaker::kLeastRestNs;
  for (int i = 0; i < 10; ++i) {
    Try(rest_ns);
    Fail(1);
    rest_ns = std::min(2 * rest_ns, Breaker::kMostRestNs);
  }
  EXPECT_EQ(rest_ns, Breaker::kMostRestNs);
}

TEST_F(BreakerTest, RequestsFromBeforeItOpenedDoNotMoveIt) {
  Open();
  breaker_.Answered();
  EXPECT_FALSE(Lets());
  Fail(1);
  Try(Breaker::kLeastRestNs);
}

TEST_F(BreakerTest, TrialWhoseClientLeftIsFollowedByAnother) {
  Open();
  Try(Breaker::kLeastRestNs);
  Try(Breaker::kLeastRestNs);
}

using ::testing::HasSubstr;

// Model "m" has the engines a and b, model "n" has c.
std::shared_ptr<config::Fleet> ThreeEngines() {
  auto fleet = std::make_shared<config::Fleet>();
  for (const char* name : {"a", "b", "c"}) {
    config::FleetEngine engine;
    engine.name = name;
    engine.model = *name == 'c' ? "n" : "m";
    fleet->engines.push_back(engine);
  }
  return fleet;
}

class EngineErrorsTest : public ::testing::Test {
 protected:
  EngineErrorsTest() {
    clock_.AdvanceNs(1'000'000'000);
    errors_.SetFleet(ThreeEngines());
  }
  void Break(const std::string& engine) {
    for (uint32_t i = 1; i < Breaker::kMostInARow; ++i) {
      EXPECT_FALSE(errors_.Failed(engine, EngineError::kStatus));
    }
    EXPECT_TRUE(errors_.Failed(engine, EngineError::kStatus));
  }

  ManualClock clock_;
  std::set<std::string> down_;
  EngineErrors errors_{&clock_, [this](const std::string& engine) {
                         return down_.count(engine) == 0;
                       }};
};

TEST_F(EngineErrorsTest, EngineThatErrsIsShunnedWhileAnotherServes) {
  Break("a");
  EXPECT_TRUE(errors_.Shuns("a"));
  EXPECT_FALSE(errors_.Shuns("b"));
  down_ = {"b"};
  EXPECT_FALSE(errors_.Shuns("a"));
}

TEST_F(EngineErrorsTest, TheLastOneIsNeverShunned) {
  Break("c");
  EXPECT_FALSE(errors_.Shuns("c"));
  Break("a");
  Break("b");
  EXPECT_FALSE(errors_.Shuns("a"));
  EXPECT_FALSE(errors_.Shuns("b"));
}

TEST_F(EngineErrorsTest, TrialIsOneRequestAndItsAnswerEndsIt) {
  Break("a");
  clock_.AdvanceNs(Breaker::kLeastRestNs);
  EXPECT_FALSE(errors_.Shuns("a"));
  EXPECT_TRUE(errors_.Sent("a"));
  EXPECT_TRUE(errors_.Shuns("a"));
  EXPECT_TRUE(errors_.Answered("a"));
  EXPECT_FALSE(errors_.Shuns("a"));
  EXPECT_EQ(errors_.TroubleOf("a"), "");
}

TEST_F(EngineErrorsTest, TroubleSaysWhatIsWrongAndWhereRequestsGo) {
  EXPECT_EQ(errors_.TroubleOf("a"), "");
  Break("a");
  EXPECT_THAT(errors_.TroubleOf("a"), HasSubstr("status of 500 or more"));
  EXPECT_THAT(errors_.TroubleOf("a"), HasSubstr("other engines get"));
  down_ = {"b"};
  EXPECT_THAT(errors_.TroubleOf("a"), HasSubstr("still gets requests"));
}

TEST_F(EngineErrorsTest, EngineThatFailsEveryOtherRequestIsATroubleToo) {
  for (size_t i = 0; i < EngineErrors::kMany; ++i) {
    EXPECT_EQ(errors_.TroubleOf("a"), "");
    errors_.Failed("a", EngineError::kStatus);
    errors_.Answered("a");
  }
  EXPECT_THAT(errors_.TroubleOf("a"),
              HasSubstr("in the last minute: it answers"));
  EXPECT_FALSE(errors_.Shuns("a"));
  clock_.AdvanceNs(EngineErrors::kManyNs);
  EXPECT_EQ(errors_.TroubleOf("a"), "");
}

TEST_F(EngineErrorsTest, TroubleBeganWithTheFirstOfItsFailures) {
  errors_.Failed("a", EngineError::kStatus);
  errors_.Answered("a");
  EXPECT_EQ(errors_.TroubleSince("a"), 0u);
  clock_.AdvanceNs(2 * EngineErrors::kManyNs);
  const uint64_t first = clock_.NowNs();
  Break("a");
  EXPECT_EQ(errors_.TroubleSince("a"), first) << "not the one of long ago";
  for (int i = 0; i < 20; ++i) {
    clock_.AdvanceNs(1'000'000'000);
    errors_.Failed("a", EngineError::kReset);
  }
  EXPECT_EQ(errors_.TroubleSince("a"), first);
  EXPECT_EQ(errors_.TroubleSince("b"), 0u);
}

TEST_F(EngineErrorsTest, EngineThatLeftTheFleetIsForgotten) {
  Break("a");
  auto without = ThreeEngines();
  without->engines.erase(without->engines.begin());
  errors_.SetFleet(without);
  errors_.SetFleet(ThreeEngines());
  EXPECT_FALSE(errors_.Shuns("a"));
}

}  // namespace

}  // namespace fineserve::proxy

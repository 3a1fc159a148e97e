#include "daemon/proxy/admission/breaker.h"

#include <gtest/gtest.h>

#include <algorithm>

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
  // Rests and sends the request that is the trial.
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

}  // namespace
}  // namespace fineserve::proxy

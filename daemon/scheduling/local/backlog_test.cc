#include "daemon/scheduling/local/backlog.h"

#include <gtest/gtest.h>

namespace fineserve::sched {
namespace {

// A full step of 100 tokens takes 1,000 µs.
constexpr Predictor kPredictor{{0, 10, 0}, 100, 0, 0, 1};

TEST(BacklogTest, DrainsAtTheSpeedOfFullSteps) {
  Backlog backlog;
  backlog.Add(RequestId{1}, 300, 5000, kPredictor);
  EXPECT_EQ(backlog.Tokens(5000, kPredictor), 300u);
  EXPECT_EQ(backlog.Tokens(6000, kPredictor), 200u);
  EXPECT_EQ(backlog.Tokens(8000, kPredictor), 0u);
  EXPECT_EQ(backlog.Tokens(99'000, kPredictor), 0u);
}

TEST(BacklogTest, FirstTokenSaysThatThoseBeforeAreThrough) {
  Backlog backlog;
  backlog.Add(RequestId{1}, 300, 0, kPredictor);
  backlog.Add(RequestId{2}, 200, 0, kPredictor);
  backlog.Add(RequestId{3}, 400, 0, kPredictor);
  backlog.FirstToken(RequestId{2}, 100);
  EXPECT_EQ(backlog.Tokens(100, kPredictor), 400u);
  backlog.FirstToken(RequestId{1}, 200);  // its packet was slower
  EXPECT_EQ(backlog.Tokens(100, kPredictor), 400u);
}

TEST(BacklogTest, FirstTokenIsWhereTheNextBegins) {
  Backlog backlog;
  backlog.Add(RequestId{1}, 100, 0, kPredictor);
  backlog.Add(RequestId{2}, 300, 0, kPredictor);
  backlog.FirstToken(RequestId{1}, 10'000);  // ten times slower than predicted
  EXPECT_EQ(backlog.Tokens(10'000, kPredictor), 300u);
}

TEST(BacklogTest, CancelledOneIsNotWaitedFor) {
  Backlog backlog;
  backlog.Add(RequestId{1}, 300, 0, kPredictor);
  backlog.Add(RequestId{2}, 200, 0, kPredictor);
  backlog.Remove(RequestId{1});
  backlog.Remove(RequestId{1});
  EXPECT_EQ(backlog.Tokens(0, kPredictor), 200u);
}

TEST(BacklogTest, IdleTimeDrainsNothingOfWhatComesLater) {
  Backlog backlog;
  backlog.Add(RequestId{1}, 100, 0, kPredictor);
  backlog.FirstToken(RequestId{1}, 1000);
  backlog.Add(RequestId{2}, 100, 50'000, kPredictor);
  EXPECT_EQ(backlog.Tokens(50'000, kPredictor), 100u);
}

TEST(BacklogTest, AnswersThatShowNoFirstTokenDoNotHideWhatComesLater) {
  Backlog backlog;
  backlog.Add(RequestId{1}, 100, 0, kPredictor);  // not streamed
  backlog.Add(RequestId{2}, 100, 50'000, kPredictor);
  EXPECT_EQ(backlog.Tokens(50'000, kPredictor), 100u);
}

}  // namespace
}  // namespace fineserve::sched

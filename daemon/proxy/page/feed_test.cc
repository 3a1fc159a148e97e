#include "daemon/proxy/page/feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <vector>

namespace fineserve::proxy {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A feed over a folder without daemons, and its thread.
class FeedTest : public ::testing::Test {
 protected:
  ~FeedTest() override { feed_.Stop(); }

  // Runs the loop until `done` holds; returns false after a minute.
  template <typename Done>
  bool RunUntil(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!done() && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(50));
    }
    return done();
  }
  // Reads what the seat is given into `events` until it leaves.
  void Watch(Feed::Seat* seat, std::vector<std::string>* events) {
    asio::co_spawn(
        io_,
        [](Feed::Seat* from,
           std::vector<std::string>* to) -> asio::awaitable<void> {
          while (Feed::Event event = co_await from->Next()) {
            to->push_back(*event);
          }
          to->push_back("left");
        }(seat, events),
        asio::detached);
  }

  asio::io_context io_;
  RealClock clock_;
  std::string says_ = "\"n\":1";
  int asked_ = 0;
  Feed feed_{&io_, "/nonexistent", &clock_, [this] {
               ++asked_;
               return says_;
             }};
};

TEST_F(FeedTest, NothingIsDoneWithoutAViewer) {
  EXPECT_FALSE(
      RunUntil([&, n = 0]() mutable { return asked_ > 0 || ++n > 9; }) &&
      asked_ > 0);
  EXPECT_EQ(feed_.viewers(), 0u);
}

TEST_F(FeedTest, AFrameSaysAllAndComesAgainOnlyWhenSomethingChanged) {
  std::vector<std::string> events;
  const auto seat = feed_.TakeSeat();
  Watch(seat.get(), &events);
  ASSERT_TRUE(RunUntil([&] { return asked_ >= 4; }));
  ASSERT_EQ(events.size(), 1u) << "nothing changed";
  EXPECT_THAT(events[0], StartsWith("id: 1\ndata: {\"gpus\":[],\"states\":["));
  EXPECT_THAT(events[0], HasSubstr(",\"n\":1}\n\n"));
  says_ = "\"n\":2";
  ASSERT_TRUE(RunUntil([&] { return events.size() == 2; }));
  EXPECT_THAT(events[1], HasSubstr("\"n\":2}\n\n"));
}

TEST_F(FeedTest, BeatsFillSilence) {
  std::vector<std::string> events;
  const auto seat = feed_.TakeSeat();
  Watch(seat.get(), &events);
  ASSERT_TRUE(RunUntil([&] { return events.size() == 2; }));
  EXPECT_THAT(events[1], StartsWith("event: beat\ndata: "));
  EXPECT_EQ(asked_, 1 + Feed::kPeriodsToBeat);
}

TEST_F(FeedTest, AllViewersShareOneFrame) {
  const auto first = feed_.TakeSeat();
  const auto second = feed_.TakeSeat();
  std::vector<std::string> of_first, of_second;
  Watch(first.get(), &of_first);
  Watch(second.get(), &of_second);
  ASSERT_TRUE(RunUntil([&] { return !of_first.empty(); }));
  ASSERT_TRUE(RunUntil([&] { return !of_second.empty(); }));
  EXPECT_EQ(of_first, of_second);
  EXPECT_EQ(asked_, 1) << "made once";
}

TEST_F(FeedTest, LaterViewerGetsTheNewestFrameAtOnce) {
  std::vector<std::string> early, late;
  const auto first = feed_.TakeSeat();
  Watch(first.get(), &early);
  ASSERT_TRUE(RunUntil([&] { return !early.empty(); }));
  const int asked = asked_;
  const auto second = feed_.TakeSeat();
  Watch(second.get(), &late);
  ASSERT_TRUE(RunUntil([&] { return !late.empty(); }));
  EXPECT_EQ(late[0], early[0]);
  EXPECT_LE(asked_, asked + 1);
}

TEST_F(FeedTest, SeatsAreBoundedAndFreeAgain) {
  std::vector<std::unique_ptr<Feed::Seat>> seats;
  for (size_t n = 0; n < Feed::kMostViewers; ++n) {
    seats.push_back(feed_.TakeSeat());
    ASSERT_NE(seats.back(), nullptr);
  }
  EXPECT_EQ(feed_.TakeSeat(), nullptr);
  seats.pop_back();
  EXPECT_NE(feed_.TakeSeat(), nullptr);
}

TEST_F(FeedTest, LeavingEndsTheWaitAndTheLastOneTheWork) {
  std::vector<std::string> events;
  auto seat = feed_.TakeSeat();
  Watch(seat.get(), &events);
  ASSERT_TRUE(RunUntil([&] { return !events.empty(); }));
  seat->Leave();
  ASSERT_TRUE(RunUntil([&] { return events.back() == "left"; }));
  seat.reset();
  // A reading may be under way; after that nothing is read.
  RunUntil([n = 0]() mutable { return ++n > 9; });
  const int asked = asked_;
  RunUntil([n = 0]() mutable { return ++n > 9; });
  EXPECT_EQ(asked_, asked);
}

TEST_F(FeedTest, AfterStopThereAreNoSeats) {
  const auto seat = feed_.TakeSeat();
  feed_.Stop();
  EXPECT_EQ(feed_.TakeSeat(), nullptr);
}

}  // namespace
}  // namespace fineserve::proxy

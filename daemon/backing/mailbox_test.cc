#include "daemon/backing/mailbox.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <future>

namespace fineserve::backing {
namespace {

// Stops a thread until the gate is opened.
class Gate {
 public:
  void Pass() {
    reached_.set_value();
    opened_.get_future().wait();
  }
  void WaitUntilReached() { reached_.get_future().wait(); }
  void Open() { opened_.set_value(); }

 private:
  std::promise<void> reached_, opened_;
};

// Stops the thread that makes its n-th move: the first is Put's, the second
// TakeAll's.
struct Item {
  Item(Gate* g, int n) : gate(g), moves(n) {}
  Item(Item&& from) : gate(from.gate), moves(from.moves - 1) {
    if (moves == 0) gate->Pass();
  }

  Gate* gate;
  int moves;
};
constexpr int kNever = 100;

TEST(MailboxTest, ItemsAreTakenOldestFirst) {
  Mailbox<int> box;
  for (int i = 0; i < 3; ++i) box.Put(int{i});
  EXPECT_EQ(box.TakeAll(), (std::deque<int>{0, 1, 2}));
  EXPECT_TRUE(box.TakeAll().empty());
}

// A thread that loses its processor in the middle of a call keeps no other
// waiting, as it would with a lock.
class StoppedThreadTest : public testing::Test {
 protected:
  // True if `call` ends while another thread is held at the gate in `stopping`.
  template <typename Call, typename Stopping>
  bool Ends(Call call, Stopping stopping) {
    auto stopped = std::async(std::launch::async, stopping);
    gate_.WaitUntilReached();
    auto caller = std::async(std::launch::async, call);
    const bool ended =
        caller.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    gate_.Open();
    stopped.wait();
    return ended;
  }

  Mailbox<Item> box_;
  Gate gate_;
};

TEST_F(StoppedThreadTest, TakerDoesNotWaitForAGiver) {
  size_t taken = 0;
  box_.Put({&gate_, kNever});
  EXPECT_TRUE(Ends([&] { taken = box_.TakeAll().size(); },
                   [&] {
                     box_.Put({&gate_, 1});
                   }));
  EXPECT_EQ(taken, 1u);
  EXPECT_EQ(box_.TakeAll().size(), 1u);
}

TEST_F(StoppedThreadTest, GiverDoesNotWaitForATaker) {
  box_.Put({&gate_, 2});
  EXPECT_TRUE(Ends(
      [&] {
        box_.Put({&gate_, kNever});
      },
      [&] { box_.TakeAll(); }));
  EXPECT_EQ(box_.TakeAll().size(), 1u);
}

TEST_F(StoppedThreadTest, GiverDoesNotWaitForAnother) {
  EXPECT_TRUE(Ends(
      [&] {
        box_.Put({&gate_, kNever});
      },
      [&] {
        box_.Put({&gate_, 1});
      }));
  EXPECT_EQ(box_.TakeAll().size(), 2u);
}

}  // namespace
}  // namespace fineserve::backing

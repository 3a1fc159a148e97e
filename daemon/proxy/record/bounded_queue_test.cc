#include "daemon/proxy/record/bounded_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace fineserve::proxy {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(BoundedQueueTest, ItemThatDoesNotFitIsDroppedAndCounted) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  EXPECT_FALSE(queue.Push(3));
  EXPECT_EQ(queue.dropped(), 1u);
  EXPECT_THAT(queue.Take(milliseconds(0)), ElementsAre(1, 2));
  EXPECT_TRUE(queue.Push(4));
}

TEST(BoundedQueueTest, CloseLeavesWhatIsQueuedToBeTaken) {
  BoundedQueue<int> queue(2);
  queue.Push(1);
  queue.Close();
  EXPECT_FALSE(queue.Push(2));
  EXPECT_THAT(queue.Take(milliseconds(1000)), ElementsAre(1));
  EXPECT_THAT(queue.Take(milliseconds(1000)), IsEmpty());
  EXPECT_TRUE(queue.WaitForClose(milliseconds(1000)));
}

TEST(BoundedQueueTest, NudgeEndsATakeOfNothing) {
  BoundedQueue<int> queue(1);
  queue.Nudge();
  EXPECT_THAT(queue.Take(milliseconds(1000)), IsEmpty());
  EXPECT_FALSE(queue.closed());
}

TEST(BoundedQueueTest, AllThatIsPushedIsTakenOnceAndInOrder) {
  constexpr int kItems = 20'000;
  BoundedQueue<int> queue(kItems);
  std::vector<int> taken;
  std::thread taker([&] {
    while (!queue.closed() || taken.size() < kItems) {
      for (const int item : queue.Take(milliseconds(0))) taken.push_back(item);
    }
  });
  for (int i = 0; i < kItems; ++i) ASSERT_TRUE(queue.Push(i));
  queue.Close();
  taker.join();
  ASSERT_EQ(taken.size(), static_cast<size_t>(kItems));
  for (int i = 0; i < kItems; ++i) {
    ASSERT_EQ(taken[static_cast<size_t>(i)], i);
  }
}

}  // namespace
}  // namespace fineserve::proxy

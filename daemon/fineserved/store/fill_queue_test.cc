#include "daemon/fineserved/store/fill_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fineserve::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Answer = Link::Answer;

constexpr HolderId kFirst{1}, kSecond{2};

// State of a fake link, whose pieces are named by their offset.
struct Way {
  std::vector<uint64_t> begun;
  std::deque<Answer> answers;
  bool begins = true;
  bool carries_at_once = false;
  // Carries all pieces that it has begun, and each further piece at once.
  void CarryAll() {
    carries_at_once = true;
    answers.assign(begun.size(), Answer::kCarried);
  }
};

class FakeLink : public Link {
 public:
  explicit FakeLink(Way* way) : way_(way) {}
  bool Carry(const Piece& piece) override {
    if (!way_->begins) return false;
    way_->begun.push_back(piece.offset);
    if (way_->carries_at_once) way_->answers.push_back(Answer::kCarried);
    return true;
  }
  std::optional<Answer> Take() override {
    if (way_->answers.empty()) return std::nullopt;
    const Answer answer = way_->answers.front();
    way_->answers.pop_front();
    return answer;
  }
  int descriptor() const override { return -1; }

 private:
  Way* const way_;
};

// A clock that advances by a hundredth of the patience each time that it is
// read.
class HastyClock final : public Clock {
 public:
  uint64_t NowNs() const override {
    return now_ns_ += FillQueue::kPatienceNs / 100;
  }

 private:
  mutable uint64_t now_ns_ = 0;
};

class FillQueueTest : public ::testing::Test {
 protected:
  FillQueueTest() { Connect(); }
  void Connect() {
    std::vector<std::unique_ptr<Link>> others;
    others.push_back(std::make_unique<FakeLink>(&other_));
    queue_.SetOthers(std::move(others));
  }
  void Add(uint64_t offset, HolderId holder = kFirst) {
    queue_.Add({holder, nullptr, 0, 10, whole_, offset});
  }

  Way own_, other_;
  const std::shared_ptr<const Transfer> whole_ = std::make_shared<Transfer>();
  const HastyClock clock_;
  FillQueue queue_{std::make_unique<FakeLink>(&own_), &clock_};
};

TEST_F(FillQueueTest, LinksTakeTurnsAndTheFastOneDoesMore) {
  for (uint64_t i = 0; i < 9; ++i) Add(i);
  // The other daemon gets one piece at first, which shows whether it can carry.
  EXPECT_THAT(own_.begun, ElementsAre(0, 2));
  EXPECT_THAT(other_.begun, ElementsAre(1));
  own_.CarryAll();
  other_.CarryAll();
  EXPECT_TRUE(queue_.Finish(kFirst).ok());
  EXPECT_EQ(own_.begun.size() + other_.begun.size(), 9u);
  EXPECT_EQ(queue_.own_bytes() + queue_.others_bytes(), 90u);
  EXPECT_GT(queue_.others_bytes(), 10u);
}

TEST_F(FillQueueTest, SmallPiecesGoByTheOwnLinkAndAreNotWaitedFor) {
  for (uint64_t i = 0; i < 9; ++i) queue_.Add({kFirst, nullptr, 0, 10});
  EXPECT_EQ(own_.begun.size(), 9u);
  EXPECT_TRUE(queue_.Finish(kFirst).ok());
  EXPECT_EQ(queue_.own_bytes(), 90u);
}

TEST_F(FillQueueTest, RefusedPieceIsCarriedByTheOwnLink) {
  Add(0);
  Add(1);
  Add(2);
  EXPECT_THAT(other_.begun, ElementsAre(1));
  own_.CarryAll();
  other_.answers.push_back(Answer::kRefused);
  EXPECT_TRUE(queue_.Finish(kFirst).ok());
  EXPECT_THAT(other_.begun, ElementsAre(1));
  EXPECT_THAT(own_.begun, ElementsAre(0, 2, 1));
}

TEST_F(FillQueueTest, DaemonThatHasEndedBeforeItWasAskedIsLeftOut) {
  other_.begins = false;
  for (uint64_t i = 0; i < 3; ++i) Add(i);
  own_.CarryAll();
  EXPECT_TRUE(queue_.Finish(kFirst).ok());
  EXPECT_EQ(own_.begun.size(), 3u);
  EXPECT_FALSE(queue_.has_others());
}

// It may be writing.
TEST_F(FillQueueTest, DaemonThatEndsWhileItCopiesFailsThoseAlone) {
  Add(0);
  Add(1);
  EXPECT_THAT(other_.begun, ElementsAre(1));
  own_.CarryAll();
  for (uint64_t i = 2; i < 5; ++i) Add(i, kSecond);
  other_.answers.push_back(Answer::kLost);
  EXPECT_TRUE(queue_.Finish(kSecond).ok());
  EXPECT_TRUE(absl::IsUnavailable(queue_.Finish(kFirst)));
  Add(9);  // of the same memory
  EXPECT_TRUE(absl::IsUnavailable(queue_.Finish(kFirst)));
  queue_.Drop(kFirst);
  Add(10);
  EXPECT_TRUE(queue_.Finish(kFirst).ok());
  EXPECT_EQ(own_.begun.back(), 10u);
}

TEST_F(FillQueueTest, SilentDaemonIsWaitedForAsLongAsItsPatience) {
  Add(0);
  Add(1);
  EXPECT_THAT(other_.begun, ElementsAre(1));
  own_.CarryAll();
  EXPECT_TRUE(absl::IsUnavailable(queue_.Finish(kFirst)));
  EXPECT_FALSE(queue_.has_others());
}

TEST_F(FillQueueTest, DroppedPiecesAreNotBegunNorBegunAgain) {
  for (uint64_t i = 0; i < 9; ++i) Add(i);
  other_.answers.push_back(Answer::kRefused);
  queue_.Drop(kFirst);
  own_.CarryAll();
  Add(10, kSecond);
  EXPECT_TRUE(queue_.Finish(kSecond).ok());
  EXPECT_THAT(own_.begun, ElementsAre(0, 2, 10));
}

// A link that still copies keeps the memory, and there may be too little memory
// for a second try.
TEST_F(FillQueueTest, DropWaitsForOtherLinksButNotForSilentOnes) {
  Add(0);
  Add(1);
  other_.answers.push_back(Answer::kCarried);
  queue_.Drop(kFirst);
  EXPECT_EQ(queue_.others_bytes(), 10u);
  EXPECT_TRUE(queue_.has_others());
  Add(2);
  EXPECT_THAT(other_.begun, ElementsAre(1, 2));
  queue_.Drop(kFirst);
  EXPECT_FALSE(queue_.has_others());
}

// The dropped links may still write to the memory of other holders.
TEST_F(FillQueueTest, OthersThatAreDroppedFailWhatTheyCopy) {
  Add(0);
  Add(1, kSecond);
  EXPECT_THAT(other_.begun, ElementsAre(1));
  queue_.DropOthers();
  EXPECT_FALSE(queue_.has_others());
  own_.CarryAll();
  EXPECT_TRUE(queue_.Finish(kFirst).ok());
  EXPECT_TRUE(absl::IsUnavailable(queue_.Finish(kSecond)));
}

TEST_F(FillQueueTest, LinkThatRefusesForGoodIsLeftOut) {
  Add(0);
  Add(1);
  own_.CarryAll();
  other_.answers.push_back(Answer::kNever);
  EXPECT_TRUE(queue_.Finish(kFirst).ok());
  EXPECT_FALSE(queue_.has_others());
  EXPECT_THAT(own_.begun, ElementsAre(0, 1));
}

TEST_F(FillQueueTest, FailureOfTheOwnLinkIsTheHoldersAlone) {
  Add(0);
  own_.answers.push_back(Answer::kLost);
  EXPECT_TRUE(absl::IsUnavailable(queue_.Finish(kFirst)));
  own_.carries_at_once = other_.carries_at_once = true;
  Add(1, kSecond);
  EXPECT_TRUE(queue_.Finish(kSecond).ok());
  own_.begins = false;
  queue_.Add({kSecond, nullptr, 0, 10});
  EXPECT_TRUE(absl::IsUnavailable(queue_.Finish(kSecond)));
}

TEST_F(FillQueueTest, LinksThatHavePiecesAreNotReplaced) {
  Add(0);
  Add(1);
  Way third;
  std::vector<std::unique_ptr<Link>> others;
  others.push_back(std::make_unique<FakeLink>(&third));
  queue_.SetOthers(std::move(others));
  own_.answers.push_back(Answer::kCarried);
  other_.answers.push_back(Answer::kCarried);
  EXPECT_TRUE(queue_.Finish(kFirst).ok());
  Add(2);
  Add(3);
  EXPECT_THAT(third.begun, IsEmpty());
  EXPECT_EQ(other_.begun.size(), 2u);
}

}  // namespace
}  // namespace fineserve::store

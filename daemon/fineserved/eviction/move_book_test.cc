#include "daemon/fineserved/eviction/move_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/contract/abi/transport.h"

namespace fineserve::server {
namespace {

using abi::Place;
using slab::EngineId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using MoverId = MoveBook::MoverId;
using AskerId = MoveBook::AskerId;

constexpr EngineId kChat{1};
constexpr EngineId kCode{2};
constexpr AskerId kAsker{7};

// Two processes of one engine, of 10 bytes each, and one of another.
class MoveBookTest : public ::testing::Test {
 protected:
  MoveBookTest() {
    Come(1, kChat, Place::kGpu);
    Come(2, kChat, Place::kGpu);
    Come(3, kCode, Place::kGpu);
  }
  void Come(uint64_t mover, EngineId engine, Place place) {
    book_.Report(MoverId{mover}, engine, Report(place));
  }
  static abi::MoveReport Report(Place place) {
    abi::MoveReport report = {};
    report.place = place;
    (place == Place::kHost ? report.out_bytes : report.moving_bytes) = 10;
    return report;
  }
  void Obey(const MoveBook::Order& order, EngineId engine = kChat) {
    abi::MoveReport report = Report(order.to);
    report.order = order.number;
    book_.Report(order.mover, engine, report);
  }
  void Fail(const MoveBook::Order& order, const char* why,
            EngineId engine = kChat) {
    abi::MoveReport report =
        Report(order.to == Place::kGpu ? Place::kHost : Place::kGpu);
    report.order = order.number;
    report.failed = 1;
    abi::CopyText(report.why, why);
    book_.Report(order.mover, engine, report);
  }
  MoveBook::Answer OneAnswer() {
    const auto answers = book_.TakeAnswers();
    EXPECT_THAT(answers, SizeIs(1));
    return answers.empty() ? MoveBook::Answer{} : answers[0];
  }

  ManualClock clock_;
  MoveBook book_{&clock_};
};

TEST_F(MoveBookTest, AllProcessesOfTheEngineMoveAndThenTheAskerIsAnswered) {
  book_.Ask(kAsker, kChat, Place::kHost);
  const auto orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(2));
  EXPECT_NE(orders[0].number, orders[1].number);
  Obey(orders[0]);
  EXPECT_THAT(book_.TakeAnswers(), IsEmpty());
  Obey(orders[1]);
  const MoveBook::Answer answer = OneAnswer();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.done.engine_id, 1u);
  EXPECT_EQ(answer.done.processes, 2u);
  EXPECT_EQ(answer.done.moved, 2u);
  EXPECT_EQ(answer.done.bytes, 20u);
  EXPECT_EQ(book_.counts().evicted, 1u);
  EXPECT_EQ(book_.EvictedBytes(kChat), 20u);
  EXPECT_EQ(book_.EvictedBytes(kCode), 0u);
}

TEST_F(MoveBookTest, DropIsAMoveOfAnEngineOfOneProcessOnTheGpu) {
  ParameterDrop drop = {{}, 6};
  drop.lender.pid = 77;
  book_.Ask(kAsker, kChat, Place::kDropped, drop);
  EXPECT_THAT(std::string(OneAnswer().status.message()),
              HasSubstr("of one process"));
  book_.Ask(kAsker, kCode, Place::kDropped, drop);
  auto orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  EXPECT_EQ(orders[0].to, Place::kDropped);
  EXPECT_EQ(orders[0].drop.lender.pid, 77u);
  abi::MoveReport dropped = Report(Place::kDropped);
  dropped.out_bytes = 6;
  dropped.order = orders[0].number;
  book_.Report(orders[0].mover, kCode, dropped);
  EXPECT_EQ(OneAnswer().done.bytes, 6u);
  EXPECT_EQ(book_.EvictedBytes(kCode), 0u) << "it is on the GPU";
  EXPECT_EQ(book_.BackIn(kCode), 0);
  // The engine may already have dropped all that it can.
  book_.Ask(kAsker, kCode, Place::kDropped, drop);
  orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  dropped.order = orders[0].number;
  book_.Report(orders[0].mover, kCode, dropped);
  EXPECT_EQ(OneAnswer().done.moved, 0u);
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
  book_.Ask(kAsker, kCode, Place::kGpu);
  orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  Obey(orders[0], kCode);
  EXPECT_EQ(OneAnswer().done.moved, 1u);
  EXPECT_EQ(book_.counts().activated, 0u) << "it was not out";
}

// The policy orders a drop or a restoration without an asker.
TEST_F(MoveBookTest, DropsAndRestorationsCanBeginByThemselves) {
  ParameterDrop drop = {{}, 6};
  drop.lender.pid = 77;
  EXPECT_FALSE(book_.Drop(kChat, drop)) << "it has several processes";
  EXPECT_FALSE(book_.Restore(kCode)) << "it has its own";
  ASSERT_TRUE(book_.Drop(kCode, drop));
  EXPECT_FALSE(book_.Drop(kCode, drop)) << "it moves";
  EXPECT_TRUE(book_.DroppedOf(kCode).moves);
  auto orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  EXPECT_EQ(orders[0].drop.lender.pid, 77u);
  Fail(orders[0], "they differ", kCode);
  EXPECT_EQ(book_.DroppedOf(kCode).trouble, "they differ");
  EXPECT_EQ(book_.DroppedOf(kCode).bytes, 0u);
  ASSERT_TRUE(book_.Drop(kCode, drop));
  orders = book_.TakeOrders();
  abi::MoveReport dropped = Report(Place::kDropped);
  dropped.out_bytes = 6;
  dropped.order = orders[0].number;
  dropped.lender_pid = 77;
  book_.Report(orders[0].mover, kCode, dropped);
  EXPECT_EQ(book_.DroppedOf(kCode).bytes, 6u);
  EXPECT_EQ(book_.DroppedOf(kCode).lender_pid, 77u);
  EXPECT_EQ(book_.DroppedOf(kCode).trouble, "");
  EXPECT_EQ(book_.counts().dropped, 1u);
  EXPECT_FALSE(book_.Drop(kCode, drop)) << "it has dropped";
  drop.bytes = 9;  // more than that
  ASSERT_TRUE(book_.Drop(kCode, drop));
  orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  dropped.order = orders[0].number;
  dropped.out_bytes = 10;
  book_.Report(orders[0].mover, kCode, dropped);
  EXPECT_EQ(book_.DroppedOf(kCode).bytes, 10u);
  EXPECT_EQ(book_.counts().dropped, 1u) << "the same drop";
  drop.bytes = 20;
  ASSERT_TRUE(book_.Drop(kCode, drop));
  dropped.order = book_.TakeOrders().at(0).number;
  dropped.failed = 1;
  book_.Report(orders[0].mover, kCode, dropped);
  EXPECT_THAT(book_.TakeOrders(), IsEmpty()) << "it reads on";
  EXPECT_FALSE(book_.DroppedOf(kCode).moves);
  ASSERT_TRUE(book_.Restore(kCode));
  orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  EXPECT_EQ(orders[0].to, Place::kGpu);
  Obey(orders[0], kCode);
  EXPECT_EQ(book_.DroppedOf(kCode).bytes, 0u);
  EXPECT_EQ(book_.counts().restored, 1u);
  EXPECT_EQ(book_.counts().activated, 0u);
  EXPECT_FALSE(book_.AnyMoves());
  EXPECT_THAT(book_.TakeAnswers(), IsEmpty());
}

TEST_F(MoveBookTest, DropThatFailsIsOver) {
  book_.Ask(kAsker, kCode, Place::kDropped);
  const auto orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  Fail(orders[0], "they differ", kCode);
  EXPECT_THAT(std::string(OneAnswer().status.message()), HasSubstr("differ"));
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
  EXPECT_FALSE(book_.AnyMoves());
}

TEST_F(MoveBookTest, OrderThatIsFulfilledIsAnsweredAtOnce) {
  book_.Ask(kAsker, kChat, Place::kGpu);
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
  const MoveBook::Answer answer = OneAnswer();
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.done.moved, 0u);
}

TEST_F(MoveBookTest, EngineWithoutMovableMemoryIsRefused) {
  book_.Ask(kAsker, EngineId{9}, Place::kHost);
  EXPECT_THAT(std::string(OneAnswer().status.message()),
              HasSubstr("FINESERVE_EVICT=auto"));
}

TEST_F(MoveBookTest, SecondMoveOfAnEngineIsRefusedWhileOneIsUnderWay) {
  book_.Ask(kAsker, kChat, Place::kHost);
  book_.Ask(AskerId{8}, kChat, Place::kGpu);
  EXPECT_THAT(std::string(OneAnswer().status.message()), HasSubstr("already"));
  book_.Ask(AskerId{9}, kCode, Place::kHost);  // another engine's is not
  EXPECT_THAT(book_.TakeOrders(), SizeIs(3));
}

TEST_F(MoveBookTest, EvictionThatOneProcessCannotIsUndone) {
  book_.Ask(kAsker, kChat, Place::kHost);
  const auto orders = book_.TakeOrders();
  Obey(orders[0]);
  Fail(orders[1], "it has no host memory");
  EXPECT_THAT(book_.TakeAnswers(), IsEmpty()) << "one is still out";
  const auto back = book_.TakeOrders();
  ASSERT_THAT(back, SizeIs(1));
  EXPECT_EQ(back[0].mover, orders[0].mover);
  EXPECT_EQ(back[0].to, Place::kGpu);
  Obey(back[0]);
  EXPECT_EQ(OneAnswer().status.message(), "it has no host memory");
  EXPECT_EQ(book_.counts().failed, 1u);
}

TEST_F(MoveBookTest, FailureWhileOthersAreStillLeavingCallsThemBackToo) {
  book_.Ask(kAsker, kChat, Place::kHost);
  const auto orders = book_.TakeOrders();
  Fail(orders[0], "no");
  EXPECT_THAT(book_.TakeOrders(), IsEmpty()) << "the other has an order";
  Obey(orders[1]);
  const auto back = book_.TakeOrders();
  ASSERT_THAT(back, SizeIs(1));
  Fail(back[0], "out of device memory");
  EXPECT_THAT(std::string(OneAnswer().status.message()),
              HasSubstr("could not come back: out of device memory"));
}

TEST_F(MoveBookTest, ActivationThatFailsLeavesThatProcessOutToBeAskedAgain) {
  Come(1, kChat, Place::kHost);
  Come(2, kChat, Place::kHost);
  book_.Ask(kAsker, kChat, Place::kGpu);
  const auto orders = book_.TakeOrders();
  Fail(orders[0], "out of device memory");
  Obey(orders[1]);
  EXPECT_EQ(OneAnswer().status.message(), "out of device memory");
  book_.Ask(kAsker, kChat, Place::kGpu);
  const auto again = book_.TakeOrders();
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].mover, orders[0].mover);
  Obey(again[0]);
  EXPECT_TRUE(OneAnswer().status.ok());
}

TEST_F(MoveBookTest, DeathOfAProcessEndsItsMoveAndCallsTheOthersBack) {
  book_.Ask(kAsker, kChat, Place::kHost);
  const auto orders = book_.TakeOrders();
  Obey(orders[0]);
  book_.Gone(orders[1].mover);
  const auto back = book_.TakeOrders();
  ASSERT_THAT(back, SizeIs(1));
  Obey(back[0]);
  EXPECT_THAT(std::string(OneAnswer().status.message()), HasSubstr("ended"));
  // When the last process goes too, none is left to answer for the engine.
  book_.Ask(kAsker, kChat, Place::kHost);
  book_.Gone(book_.TakeOrders().at(0).mover);
  EXPECT_FALSE(OneAnswer().status.ok());
}

TEST_F(MoveBookTest, MoveGoesOnWithoutItsAsker) {
  book_.Ask(kAsker, kChat, Place::kHost);
  const auto orders = book_.TakeOrders();
  book_.AskerGone(kAsker);
  Obey(orders[0]);
  Obey(orders[1]);
  EXPECT_THAT(book_.TakeAnswers(), IsEmpty());
  book_.Ask(kAsker, kChat, Place::kGpu);
  EXPECT_THAT(book_.TakeOrders(), SizeIs(2));
}

// A mover that lost its connection reconnects with the result of its former
// order.
TEST_F(MoveBookTest, ResultOfAnOrderOfAFormerConnectionIsNoResult) {
  book_.Ask(kAsker, kChat, Place::kHost);
  const auto orders = book_.TakeOrders();
  book_.Gone(orders[0].mover);
  abi::MoveReport late = Report(Place::kHost);
  late.order = orders[0].number;
  book_.Report(MoverId{4}, kChat, late);
  const auto back = book_.TakeOrders();
  ASSERT_THAT(back, SizeIs(1)) << "it is out, and is called back";
  EXPECT_EQ(back[0].mover, MoverId{4});
}

TEST_F(MoveBookTest, NeededMemoryComesBackWithoutAnAsker) {
  abi::MoveReport needed = Report(Place::kHost);
  needed.need = abi::Need::kReturn;
  book_.Report(MoverId{1}, kChat, needed);
  const auto orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1)) << "the other process is on the GPU";
  EXPECT_EQ(orders[0].to, Place::kGpu);
  book_.Report(MoverId{1}, kChat, needed);  // it crossed the order
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
  Obey(orders[0]);
  EXPECT_THAT(book_.TakeAnswers(), IsEmpty());
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
}

// The process asks again by itself after a pause.
TEST_F(MoveBookTest, NeededMemoryThatFindsNoRoomIsNotOrderedInALoop) {
  abi::MoveReport needed = Report(Place::kHost);
  needed.need = abi::Need::kReturn;
  book_.Report(MoverId{3}, kCode, needed);
  Fail(book_.TakeOrders().at(0), "no room");
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
  book_.Report(MoverId{3}, kCode, needed);
  EXPECT_THAT(book_.TakeOrders(), SizeIs(1));
}

TEST_F(MoveBookTest, IdleEngineLeavesAndComesBackWhenItIsNeeded) {
  EXPECT_FALSE(book_.Need(kCode)) << "it is here";
  EXPECT_TRUE(book_.Leave(kCode));
  EXPECT_FALSE(book_.Leave(kCode)) << "it is leaving";
  const auto orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  Obey(orders[0], kCode);
  EXPECT_FALSE(book_.Leave(kCode));
  EXPECT_TRUE(book_.Need(kCode));
  EXPECT_FALSE(book_.Need(kCode)) << "it is coming";
  EXPECT_EQ(book_.TakeOrders().at(0).to, Place::kGpu);
  EXPECT_FALSE(book_.Leave(EngineId{9}));
}

TEST_F(MoveBookTest, SecondAskerOfAMoveGetsItsResultToo) {
  book_.Ask(kAsker, kCode, Place::kHost);
  book_.Ask(AskerId{8}, kCode, Place::kHost);
  const auto orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  Obey(orders[0], kCode);
  const auto answers = book_.TakeAnswers();
  ASSERT_THAT(answers, SizeIs(2));
  for (const auto& answer : answers) EXPECT_TRUE(answer.status.ok());
}

TEST_F(MoveBookTest, EngineThatCouldNotLeaveIsLeftAloneForLongerEachTime) {
  const auto fail_to_leave = [this] {
    EXPECT_TRUE(book_.Leave(kCode));
    const auto orders = book_.TakeOrders();
    ASSERT_THAT(orders, SizeIs(1));
    Fail(orders[0], "no", kCode);
  };
  struct Pause {
    uint64_t none_s, if_others_wait_s;  // seconds without a question
  };
  for (const Pause pause : {Pause{10, 10}, {20, 10}, {40, 10}, {80, 20}}) {
    SCOPED_TRACE(pause.none_s);
    fail_to_leave();
    clock_.AdvanceNs(pause.if_others_wait_s * 1'000'000'000 - 1);
    EXPECT_FALSE(book_.ResidenceOf(kCode)) << "others leave instead of it";
    EXPECT_FALSE(book_.Leave(kCode));
    clock_.AdvanceNs(1);
    const uint64_t left_s = pause.none_s - pause.if_others_wait_s;
    ASSERT_TRUE(book_.ResidenceOf(kCode));
    EXPECT_EQ(book_.ResidenceOf(kCode)->has_declined, left_s > 0);
    clock_.AdvanceNs(left_s * 1'000'000'000);
    EXPECT_FALSE(book_.ResidenceOf(kCode)->has_declined);
  }
  fail_to_leave();
  book_.Ask(kAsker, kCode, Place::kHost);  // an operator may always try
  EXPECT_THAT(book_.TakeOrders(), SizeIs(1));
}

TEST_F(MoveBookTest, EngineThatLeavesIsAwayAlready) {
  const uint64_t here = book_.ResidenceOf(kCode)->bytes;
  EXPECT_NE(here, 0u);
  EXPECT_TRUE(book_.Leave(kCode));
  const auto leaving = book_.ResidenceOf(kCode);
  ASSERT_TRUE(leaving) << "nothing keeps it, so a replica may come back";
  EXPECT_EQ(leaving->bytes, 0u);
  EXPECT_EQ(leaving->away_bytes, here);
}

TEST_F(MoveBookTest, ProcessThatTakesNoOrdersHoldsUpNoOther) {
  EXPECT_TRUE(book_.Leave(kCode));
  EXPECT_TRUE(book_.AnyLeaves());
  clock_.AdvanceNs(MoveBook::kBelievedNs);
  EXPECT_FALSE(book_.AnyLeaves()) << "its process is stopped";
}

TEST_F(MoveBookTest, WayBackIsMeasuredFromWhenItIsFilled) {
  Come(4, EngineId{3}, Place::kHost);
  EXPECT_FALSE(book_.AnyOtherComes(kCode));
  EXPECT_TRUE(book_.Need(EngineId{3}));
  EXPECT_TRUE(book_.AnyOtherComes(kCode));
  EXPECT_FALSE(book_.AnyOtherComes(EngineId{3}));
  clock_.AdvanceNs(50'000'000'000);  // until others have left
  book_.Fills(EngineId{3});
  clock_.AdvanceNs(2'000'000);
  const auto orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  Obey(orders[0], EngineId{3});
  EXPECT_EQ(book_.ResidenceOf(kCode)->activation, 2000);
}

// Two processes that rest on their way, since each may have the other's memory
// open.
class RestingMoveTest : public MoveBookTest {
 protected:
  RestingMoveTest() {
    for (const uint64_t mover : {1, 2}) Show(mover, Place::kGpu, 0);
  }
  void Show(uint64_t mover, Place place, uint32_t order, bool failed = false) {
    abi::MoveReport report = Report(place);
    report.can_rest = 1;
    report.order = order;
    report.failed = failed ? 1 : 0;
    book_.Report(MoverId{mover}, kChat, report);
  }
  void Obey(const MoveBook::Order& order) {
    Show(static_cast<uint64_t>(order.mover), order.to, order.number);
  }
  // Takes the two orders that are given now, and expects both to be to that
  // place.
  std::vector<MoveBook::Order> Two(Place to) {
    auto orders = book_.TakeOrders();
    EXPECT_THAT(orders, SizeIs(2));
    for (const auto& order : orders) EXPECT_EQ(order.to, to);
    orders.resize(2);
    return orders;
  }
  void ObeyBoth(Place to) {
    const auto orders = Two(to);
    Obey(orders[0]);
    EXPECT_THAT(book_.TakeOrders(), IsEmpty()) << "the other is not there";
    Obey(orders[1]);
  }
};

TEST_F(RestingMoveTest, AllRestBeforeOneLeavesAndAllAreThereBeforeOneGoesOn) {
  book_.Ask(kAsker, kChat, Place::kHost);
  ObeyBoth(Place::kAtRest);
  for (const auto& order : Two(Place::kHost)) Obey(order);
  MoveBook::Answer answer = OneAnswer();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.done.moved, 2u);
  book_.Ask(kAsker, kChat, Place::kGpu);
  ObeyBoth(Place::kAtRest);
  for (const auto& order : Two(Place::kGpu)) Obey(order);
  answer = OneAnswer();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.done.moved, 2u);
}

TEST_F(RestingMoveTest, OneThatCannotRestLetsTheOthersGoOn) {
  book_.Ask(kAsker, kChat, Place::kHost);
  const auto orders = Two(Place::kAtRest);
  Obey(orders[0]);
  Show(2, Place::kGpu, orders[1].number, /*failed=*/true);
  const auto back = book_.TakeOrders();
  ASSERT_THAT(back, SizeIs(1));
  EXPECT_EQ(back[0].mover, MoverId{1});
  EXPECT_EQ(back[0].to, Place::kGpu);
  Obey(back[0]);
  EXPECT_FALSE(OneAnswer().status.ok());
}

TEST_F(RestingMoveTest, OneThatCannotLeaveRestsUntilTheOthersAreBack) {
  book_.Ask(kAsker, kChat, Place::kHost);
  ObeyBoth(Place::kAtRest);
  const auto orders = Two(Place::kHost);
  Show(1, Place::kAtRest, orders[0].number, /*failed=*/true);
  EXPECT_THAT(book_.TakeOrders(), IsEmpty()) << "the other is leaving still";
  Obey(orders[1]);
  const auto back = book_.TakeOrders();
  ASSERT_THAT(back, SizeIs(1));
  EXPECT_EQ(back[0].mover, MoverId{2});
  EXPECT_EQ(back[0].to, Place::kAtRest);
  Obey(back[0]);
  for (const auto& order : Two(Place::kGpu)) Obey(order);
  EXPECT_FALSE(OneAnswer().status.ok());
}

TEST_F(RestingMoveTest, DeathOfOneThatRestsEndsAnEviction) {
  book_.Ask(kAsker, kChat, Place::kHost);
  const auto orders = Two(Place::kAtRest);
  Obey(orders[0]);
  book_.Gone(MoverId{1});
  Obey(orders[1]);
  const auto back = book_.TakeOrders();
  ASSERT_THAT(back, SizeIs(1));
  EXPECT_EQ(back[0].to, Place::kGpu);
  Obey(back[0]);
  EXPECT_FALSE(OneAnswer().status.ok());
}

// The process that comes back may have nothing open of the process that finds
// no room.
TEST_F(RestingMoveTest, OneThatDoesNotComeBackHoldsUpNoOther) {
  for (const uint64_t mover : {1, 2}) Show(mover, Place::kHost, 0);
  book_.Ask(kAsker, kChat, Place::kGpu);
  const auto orders = Two(Place::kAtRest);
  Show(1, Place::kHost, orders[0].number, /*failed=*/true);
  Obey(orders[1]);
  const auto on = book_.TakeOrders();
  ASSERT_THAT(on, SizeIs(1));
  EXPECT_EQ(on[0].mover, MoverId{2});
  Show(2, Place::kAtRest, on[0].number, /*failed=*/true);
  EXPECT_FALSE(OneAnswer().status.ok());
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
}

TEST_F(RestingMoveTest, OneThatIsNeededAtRestGoesOn) {
  Show(1, Place::kAtRest, 0);
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
  abi::MoveReport needed = Report(Place::kAtRest);
  needed.can_rest = 1;
  needed.need = abi::Need::kReturn;
  book_.Report(MoverId{1}, kChat, needed);
  const auto orders = book_.TakeOrders();
  ASSERT_THAT(orders, SizeIs(1));
  EXPECT_EQ(orders[0].to, Place::kGpu);
}

// A process of an older release knows no rest, so the engine's other processes
// leave at once, too.
TEST_F(RestingMoveTest, ProcessThatKnowsNoRestGetsNoOrderToIt) {
  Come(2, kChat, Place::kGpu);
  book_.Ask(kAsker, kChat, Place::kHost);
  Two(Place::kHost);
}

// Two ranks, the first of which is on this GPU, and the process that runs their
// block pool; mover 3 is another engine's process.
class RankBookTest : public MoveBookTest {
 protected:
  static constexpr EngineId kWide{5};
  static constexpr uint64_t kFirst = 11, kSecond = 12, kPool = 13;

  RankBookTest() {
    Say(kFirst, Place::kGpu);
    Say(kSecond, Place::kGpu);
  }
  void ComePool() { Say(kPool, Place::kGpu); }
  void Say(uint64_t mover, Place place, uint32_t order = 0,
           bool failed = false) {
    abi::MoveReport report = Report(place);
    report.can_rest = 1;
    report.order = order;
    report.failed = failed ? 1 : 0;
    if (mover == kSecond) report.seat = abi::Seat::kRank;
    if (mover == kPool) {
      report.moving_bytes = report.out_bytes = 0;
      report.seat = abi::Seat::kPool;
      report.allocations = 2;
    }
    book_.Report(MoverId{mover}, kWide, report);
  }
  // Takes the orders, expects all to be to the same place, and returns the
  // movers that get them.
  std::vector<uint64_t> Ordered(Place to) {
    std::vector<uint64_t> movers;
    last_ = book_.TakeOrders();
    for (const MoveBook::Order& order : last_) {
      EXPECT_EQ(order.to, to);
      movers.push_back(static_cast<uint64_t>(order.mover));
    }
    return movers;
  }
  void ObeyAll() {
    for (const MoveBook::Order& order : last_) {
      Say(static_cast<uint64_t>(order.mover), order.to, order.number);
    }
  }
  void GoOut() {
    ComePool();
    book_.Ask(kAsker, kWide, Place::kHost);
    for (const Place to : {Place::kAtRest, Place::kAtRest, Place::kHost}) {
      Ordered(to);
      ObeyAll();
    }
    EXPECT_TRUE(OneAnswer().status.ok());
  }

  std::vector<MoveBook::Order> last_;
};

TEST_F(RankBookTest, BlockPoolLeavesBeforeTheRanks) {
  ComePool();
  book_.Ask(kAsker, kWide, Place::kHost);
  EXPECT_THAT(Ordered(Place::kAtRest), ElementsAre(kPool));
  ObeyAll();
  EXPECT_THAT(Ordered(Place::kAtRest), ElementsAre(kFirst, kSecond));
  ObeyAll();
  EXPECT_THAT(Ordered(Place::kHost), ElementsAre(kFirst, kSecond, kPool));
  ObeyAll();
  const MoveBook::Answer answer = OneAnswer();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.done.processes, 2u);
  EXPECT_EQ(answer.done.bytes, 20u);
  EXPECT_EQ(book_.EvictedBytes(kWide), 10u) << "of this GPU";
}

TEST_F(RankBookTest, BlockPoolThatDoesNotLeaveKeepsAllRanks) {
  ComePool();
  book_.Ask(kAsker, kWide, Place::kHost);
  EXPECT_THAT(Ordered(Place::kAtRest), ElementsAre(kPool));
  Say(kPool, Place::kGpu, last_[0].number, /*failed=*/true);
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
  EXPECT_FALSE(OneAnswer().status.ok());
}

TEST_F(RankBookTest, EngineWhoseRanksHaveNotAllComeStays) {
  book_.Gone(MoverId{kSecond});
  ComePool();
  EXPECT_FALSE(book_.Leave(kWide));
  book_.Ask(kAsker, kWide, Place::kHost);
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
  EXPECT_THAT(std::string(OneAnswer().status.message()),
              HasSubstr("have not come"));
}

TEST_F(RankBookTest, RanksThatAreBackLeaveAgainIfAnotherHasNoRoom) {
  GoOut();
  EXPECT_TRUE(book_.Need(kWide));
  EXPECT_THAT(Ordered(Place::kAtRest), ElementsAre(kFirst, kSecond, kPool));
  Say(kFirst, Place::kAtRest, last_[0].number);
  Say(kSecond, Place::kHost, last_[1].number, /*failed=*/true);
  Say(kPool, Place::kAtRest, last_[2].number);
  EXPECT_THAT(Ordered(Place::kHost), ElementsAre(kFirst, kPool));
  ObeyAll();
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
  EXPECT_FALSE(book_.Need(kWide)) << "two engines would try together";
  clock_.AdvanceNs(2'000'000'000);
  EXPECT_TRUE(book_.Need(kWide));
}

TEST_F(RankBookTest, EngineThatAnotherDaemonMovesHearsThatItIsNeeded) {
  abi::MoveReport report = Report(Place::kHost);
  report.seat = abi::Seat::kLed;
  book_.Report(MoverId{20}, EngineId{6}, report);
  EXPECT_EQ(book_.EvictedBytes(EngineId{6}), 10u);
  EXPECT_FALSE(book_.Leave(EngineId{6})) << "it is away";
  book_.Ask(kAsker, EngineId{6}, Place::kGpu);
  EXPECT_TRUE(absl::IsNotFound(OneAnswer().status)) << "fsctl asks on";
  EXPECT_TRUE(book_.Need(EngineId{6}));
  EXPECT_THAT(Ordered(Place::kGpu), ElementsAre(20u));
  EXPECT_TRUE(book_.Need(EngineId{6})) << "no result of it is waited for";
}

// Tests of room that others need on another GPU of the engine.

TEST_F(RankBookTest, EngineThatLeftForAnotherGpusRoomStaysAwayForAWhile) {
  ComePool();
  EXPECT_FALSE(book_.StayOut(kWide)) << "it is here";
  ASSERT_TRUE(book_.Leave(kWide));
  EXPECT_TRUE(book_.StayOut(kWide)) << "once it is away";
  for (const Place to : {Place::kAtRest, Place::kAtRest, Place::kHost}) {
    Ordered(to);
    ObeyAll();
  }
  EXPECT_FALSE(book_.Need(kWide));
  clock_.AdvanceNs(MoveBook::kStayOutNs / 2);
  EXPECT_TRUE(book_.StayOut(kWide)) << "the other daemon says so again";
  clock_.AdvanceNs(MoveBook::kStayOutNs / 2);
  EXPECT_FALSE(book_.Need(kWide));
  clock_.AdvanceNs(MoveBook::kStayOutNs / 2);
  EXPECT_TRUE(book_.Need(kWide));
}

TEST_F(RankBookTest, OperatorsWordBringsItBackAllTheSame) {
  GoOut();
  EXPECT_TRUE(book_.StayOut(kWide));
  book_.Ask(kAsker, kWide, Place::kGpu);
  EXPECT_THAT(Ordered(Place::kAtRest), ElementsAre(kFirst, kSecond, kPool));
}

// The engine answers with a report of the rank, which the rank's own daemon
// also reads.
TEST_F(RankBookTest, EngineThatStaysSaysSo) {
  ComePool();
  book_.Decline(MoverId{kSecond});
  EXPECT_THAT(Ordered(Place::kGpu), ElementsAre(kSecond));
  book_.Decline(MoverId{kSecond});
  EXPECT_THAT(book_.TakeOrders(), IsEmpty()) << "it has one";
  ASSERT_TRUE(book_.Leave(kWide));
  EXPECT_THAT(Ordered(Place::kAtRest), ElementsAre(kPool));
  Say(kSecond, Place::kGpu);
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
}

TEST_F(MoveBookTest, OperatorsOrderIsSeenUntilItHasEnded) {
  Come(4, EngineId{9}, Place::kHost);
  EXPECT_FALSE(book_.ResidenceOf(EngineId{9})->is_ordered);
  book_.Ask(kAsker, EngineId{9}, Place::kGpu);
  EXPECT_TRUE(book_.ResidenceOf(EngineId{9})->is_ordered);
  book_.AskerGone(kAsker);
  EXPECT_FALSE(book_.ResidenceOf(EngineId{9})->is_ordered);
}

// The book of that other GPU.
class LedBookTest : public RankBookTest {
 protected:
  static constexpr EngineId kLed{6};
  static constexpr uint64_t kRank = 20;
  static constexpr uint64_t kSecondNs = 1'000'000'000;

  LedBookTest() { SayLed(Place::kGpu); }
  void SayLed(Place place, bool none_orders = false,
              abi::Need need = abi::Need::kNone) {
    abi::MoveReport report = Report(place);
    report.seat = abi::Seat::kLed;
    report.need = need;
    report.failed = none_orders ? 1 : 0;
    book_.Report(MoverId{kRank}, kLed, report);
  }
  uint64_t BytesHere() { return book_.ResidenceOf(kLed).value().bytes; }
};

TEST_F(LedBookTest, EngineThatAnotherDaemonMovesIsAskedToLeave) {
  EXPECT_EQ(BytesHere(), 10u);
  EXPECT_TRUE(book_.ResidenceOf(kLed)->spans_gpus);
  EXPECT_TRUE(book_.Leave(kLed));
  EXPECT_THAT(Ordered(Place::kHost), ElementsAre(kRank));
  EXPECT_TRUE(book_.AnyLeaves());
  EXPECT_EQ(BytesHere(), 0u);
  EXPECT_FALSE(book_.Leave(kLed)) << "it was asked just now";
  SayLed(Place::kAtRest);
  clock_.AdvanceNs(30 * kSecondNs);
  EXPECT_TRUE(book_.AnyLeaves()) << "it is on its way";
  SayLed(Place::kHost);
  EXPECT_FALSE(book_.AnyLeaves());
  EXPECT_EQ(book_.ResidenceOf(kLed)->away_bytes, 10u);
  SayLed(Place::kAtRest);
  EXPECT_FALSE(book_.AnyLeaves()) << "it comes";
}

TEST_F(LedBookTest, EngineThatStaysIsBusyForAWhileAndAskedAgain) {
  EXPECT_TRUE(book_.Leave(kLed));
  EXPECT_FALSE(book_.HasDeclined(kLed));
  SayLed(Place::kGpu);
  EXPECT_TRUE(book_.HasDeclined(kLed));
  EXPECT_FALSE(book_.AnyLeaves()) << "others may leave in its place";
  EXPECT_EQ(BytesHere(), 10u);
  EXPECT_FALSE(book_.Leave(kLed));
  clock_.AdvanceNs(kSecondNs);
  EXPECT_TRUE(book_.Leave(kLed));
  clock_.AdvanceNs(2 * kSecondNs);
  EXPECT_FALSE(book_.HasDeclined(kLed));
}

TEST_F(LedBookTest, EngineThatSaysItsSizesHasNotDeclined) {
  EXPECT_TRUE(book_.Leave(kLed));
  SayLed(Place::kGpu, /*none_orders=*/false, abi::Need::kSizes);
  EXPECT_FALSE(book_.HasDeclined(kLed));
  EXPECT_TRUE(book_.AnyLeaves());
}

TEST_F(LedBookTest, EngineThatDoesNotAnswerIsLeftAloneAfterAMinute) {
  int asked = 0;
  for (; book_.Leave(kLed); ++asked) clock_.AdvanceNs(kSecondNs);
  EXPECT_EQ(asked, 60);
  EXPECT_EQ(book_.ResidenceOf(kLed), absl::nullopt);
  EXPECT_FALSE(book_.AnyLeaves());
  clock_.AdvanceNs(10 * kSecondNs);
  EXPECT_EQ(BytesHere(), 10u);
  EXPECT_TRUE(book_.Leave(kLed));
}

TEST_F(LedBookTest, EngineThatNoDaemonOrdersDoesNotLeave) {
  EXPECT_TRUE(book_.Leave(kLed));
  SayLed(Place::kGpu, /*none_orders=*/true);
  EXPECT_EQ(book_.ResidenceOf(kLed), absl::nullopt);
  EXPECT_FALSE(book_.AnyLeaves());
  SayLed(Place::kGpu);
  EXPECT_EQ(BytesHere(), 10u);
}

TEST_F(LedBookTest, OthersAreToldToStayOutTwiceASecondAtMost) {
  SayLed(Place::kHost);
  book_.KeepOthersOut(kLed);
  EXPECT_THAT(book_.TakeOrders(), IsEmpty()) << "it is its own";
  clock_.AdvanceNs(kSecondNs);
  book_.KeepOthersOut(kCode);
  EXPECT_THAT(Ordered(Place::kHost), ElementsAre(kRank));
  book_.KeepOthersOut(kCode);
  EXPECT_THAT(book_.TakeOrders(), IsEmpty());
  clock_.AdvanceNs(kSecondNs / 2);
  book_.KeepOthersOut(kCode);
  EXPECT_THAT(Ordered(Place::kHost), ElementsAre(kRank));
}

}  // namespace
}  // namespace fineserve::server

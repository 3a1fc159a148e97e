#include "daemon/scheduling/local/policy/calendar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace fineserve::sched {
namespace {

Waiting WaitingUntil(uint64_t id, Micros deadline) {
  return {static_cast<uint32_t>(id % 1000), RequestId{id}, deadline};
}

// Removes the first request until the calendar is empty, and returns the ids in
// that order.
std::vector<uint64_t> Drain(Calendar* calendar,
                            const std::map<uint64_t, Calendar::Handle>& at) {
  std::vector<uint64_t> ids;
  while (!calendar->empty()) {
    ids.push_back(Number(calendar->First().id));
    calendar->Remove(at.at(ids.back()));
  }
  return ids;
}

TEST(CalendarTest, FirstIsAllThatWasAdded) {
  Calendar calendar;
  EXPECT_TRUE(calendar.empty());
  calendar.Add({17, RequestId{3}, kNever});
  ASSERT_FALSE(calendar.empty());
  EXPECT_EQ(calendar.First().tokens, 17u);
  EXPECT_EQ(calendar.First().id, RequestId{3});
  EXPECT_EQ(calendar.First().deadline, kNever);
}

TEST(CalendarTest, EqualDeadlinesAreInOrderOfId) {
  Calendar calendar;
  std::map<uint64_t, Calendar::Handle> at;
  for (const uint64_t id : {7, 2, 9, 4}) {
    at[id] = calendar.Add(WaitingUntil(id, 500));
  }
  EXPECT_EQ(Drain(&calendar, at), (std::vector<uint64_t>{2, 4, 7, 9}));
}

// The µs over which the deadlines spread, and the first deadline.
struct Case {
  const char* name;
  Micros span;   // deadlines are in it
  Micros start;  // of the first; earlier than 0: before the clock's
};

class CalendarSpanTest : public testing::TestWithParam<Case> {
 protected:
  // Returns a deadline for an id; the order of deadlines does not follow from
  // that of the ids.
  Micros Deadline(uint64_t id) const {
    return GetParam().start +
           static_cast<Micros>(id * 0x9e3779b97f4a7c15u >> 8) % GetParam().span;
  }
};

TEST_P(CalendarSpanTest, EachIsFirstInItsTurn) {
  Calendar calendar;
  std::map<uint64_t, Calendar::Handle> at;
  std::vector<std::pair<Micros, uint64_t>> order;
  for (uint64_t id = 1; id <= 3000; ++id) {
    at[id] = calendar.Add(WaitingUntil(id, Deadline(id)));
    order.emplace_back(Deadline(id), id);
  }
  std::sort(order.begin(), order.end());
  std::vector<uint64_t> expected;
  for (const auto& [deadline, id] : order) expected.push_back(id);
  EXPECT_EQ(Drain(&calendar, at), expected);
  // New requests take the slots of the removed requests.
  for (uint64_t id = 1; id <= 3000; ++id) calendar.Add(WaitingUntil(id, 0));
  EXPECT_EQ(calendar.slots(), 3000u);
}

// Any request may be removed and others added; a model says which request is
// first.
TEST_P(CalendarSpanTest, FirstIsThatOfAnOrderedSet) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  Calendar calendar;
  std::map<std::pair<Micros, uint64_t>, Calendar::Handle> model;
  uint64_t next_id = 0;
  for (int round = 0; round < 40'000; ++round) {
    const uint64_t grows = round / 5000 % 2 == 0 ? 70 : 30;  // %
    if (model.empty() || random() % 100 < grows) {
      const uint64_t id = ++next_id;
      model[{Deadline(id), id}] = calendar.Add(WaitingUntil(id, Deadline(id)));
    } else {
      auto gone =
          model.begin();  // mostly the first, as requests start or become late
      if (random() % 4 == 0) {
        gone = model.lower_bound({Deadline(random()), 0});
        if (gone == model.end()) gone = model.begin();
      }
      calendar.Remove(gone->second);
      model.erase(gone);
    }
    ASSERT_EQ(calendar.empty(), model.empty());
    if (model.empty()) continue;
    const auto& [deadline, id] = model.begin()->first;
    ASSERT_EQ(calendar.First().deadline, deadline);
    ASSERT_EQ(calendar.First().id, RequestId{id});
  }
}

INSTANTIATE_TEST_SUITE_P(Spans, CalendarSpanTest,
                         testing::Values(Case{"seconds", 2'000'000, 1'000'000},
                                         Case{"one_day", 100, 7'000'000},
                                         Case{"few_days", 20'000, -10'000},
                                         Case{"years", Micros{1} << 52, 0}),
                         [](const auto& test) { return test.param.name; });

TEST(CalendarTest, FewAreKeptInOrderThoughManyAreAdded) {
  Calendar calendar;
  for (uint64_t id = 1; id <= 3000; ++id) {
    calendar.Add(WaitingUntil(id, static_cast<Micros>(id * 389 % 3000 * 700)));
    ASSERT_LE(calendar.near(), 64u);
  }
}

// Far ones come back when all that were near have gone, and leave again.
TEST(CalendarTest, SoonerAndSoonerThenLaterAndLater) {
  Calendar calendar;
  std::map<uint64_t, Calendar::Handle> at;
  std::vector<uint64_t> expected;
  for (uint64_t id = 1000; id > 0; --id) {
    const auto deadline = static_cast<Micros>(id * 700);
    at[id] = calendar.Add(WaitingUntil(id, deadline));
    ASSERT_EQ(calendar.First().id, RequestId{id});
  }
  for (uint64_t id = 1; id <= 1000; ++id) expected.push_back(id);
  for (uint64_t id = 1001; id <= 2000; ++id) {
    const auto deadline = static_cast<Micros>(id * 700);
    at[id] = calendar.Add(WaitingUntil(id, deadline));
    expected.push_back(id);
    ASSERT_EQ(calendar.First().id, RequestId{1});
  }
  EXPECT_EQ(Drain(&calendar, at), expected);
}

}  // namespace
}  // namespace fineserve::sched

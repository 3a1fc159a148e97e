#include "daemon/sched/waiting_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace fineserve::sched {
namespace {

Waiting Request(uint64_t id, uint32_t tokens, Micros deadline) {
  return {tokens, RequestId{id}, deadline};
}

bool Same(const absl::optional<Waiting>& a, const absl::optional<Waiting>& b) {
  if (a.has_value() != b.has_value()) return false;
  return !a || (a->id == b->id && a->tokens == b->tokens &&
                a->deadline == b->deadline);
}

TEST(WaitingTreeTest, EmptyTreeHasNoPrefix) {
  const WaitingTree tree;
  const auto prefix = tree.LongestPrefix([](uint64_t, Micros) { return true; });
  EXPECT_FALSE(prefix.last);
  EXPECT_FALSE(prefix.after);
  EXPECT_FALSE(tree.Soonest(Request(0, UINT32_MAX, 0)));
}

TEST(WaitingTreeTest, EraseOfAStrangerChangesNothing) {
  WaitingTree tree;
  tree.Insert(Request(1, 10, 5));
  EXPECT_FALSE(tree.Erase(Request(1, 11, 5)));
  EXPECT_FALSE(tree.Erase(Request(2, 10, 5)));
  EXPECT_EQ(tree.size(), 1u);
  EXPECT_EQ(tree.tokens(), 10u);
}

TEST(WaitingTreeTest, RequestsWithoutDeadlineAreFoundToo) {
  WaitingTree tree;
  tree.Insert(Request(3, 10, kNever));
  EXPECT_EQ(tree.Soonest(Request(9, 10, 0)), RequestId{3});
}

// The same answers as a sorted vector, under random inserts and erases.
class Model {
 public:
  void Insert(const Waiting& r) {
    all_.insert(std::lower_bound(all_.begin(), all_.end(), r, Shorter), r);
  }
  Waiting RemoveAt(size_t i) {
    const Waiting r = all_[i];
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i));
    return r;
  }
  const std::vector<Waiting>& all() const { return all_; }

  WaitingTree::Prefix WithTokensBelow(uint64_t limit, Micros floor) const {
    WaitingTree::Prefix p;
    for (const Waiting& r : all_) {
      const Micros deadline = std::min(p.deadline, r.deadline);
      if (p.tokens + r.tokens >= limit || deadline <= floor) {
        p.after = r;
        break;
      }
      p.tokens += r.tokens;
      p.deadline = deadline;
      p.last = r;
    }
    return p;
  }

  absl::optional<RequestId> Soonest(const Waiting& last) const {
    absl::optional<Waiting> best;
    for (const Waiting& r : all_) {
      if (Shorter(last, r)) break;
      if (!best || Sooner(r, *best)) best = r;
    }
    if (!best) return absl::nullopt;
    return best->id;
  }

 private:
  std::vector<Waiting> all_;
};

TEST(WaitingTreePropertyTest, AnswersAsASortedListDoes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto upto = [&](uint64_t n) { return random() % (n + 1); };
  WaitingTree tree;
  Model model;
  uint64_t next_id = 0;
  for (int round = 0; round < 30'000; ++round) {
    if (model.all().empty() || upto(99) < 52) {
      const Waiting r = Request(++next_id, static_cast<uint32_t>(1 + upto(50)),
                                static_cast<Micros>(upto(300)));
      tree.Insert(r);
      model.Insert(r);
    } else {
      ASSERT_TRUE(tree.Erase(model.RemoveAt(upto(model.all().size() - 1))));
    }
    ASSERT_EQ(tree.size(), model.all().size());
    const uint64_t limit = upto(2 * tree.tokens());
    const auto floor = static_cast<Micros>(upto(30));
    const auto found = tree.LongestPrefix([&](uint64_t tokens, Micros soonest) {
      return tokens < limit && soonest > floor;
    });
    const auto expected = model.WithTokensBelow(limit, floor);
    ASSERT_EQ(found.tokens, expected.tokens);
    ASSERT_EQ(found.deadline, expected.deadline);
    ASSERT_TRUE(Same(found.last, expected.last));
    ASSERT_TRUE(Same(found.after, expected.after));
    const Waiting upper =
        Request(upto(next_id), static_cast<uint32_t>(upto(55)), 0);
    ASSERT_EQ(tree.Soonest(upper), model.Soonest(upper));
  }
  EXPECT_GT(model.all().size(), 300u);
}

}  // namespace
}  // namespace fineserve::sched

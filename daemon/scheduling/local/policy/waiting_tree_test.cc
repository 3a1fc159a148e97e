#include "daemon/scheduling/local/policy/waiting_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "daemon/scheduling/local/policy/testdata/requests.h"

namespace fineserve::sched {
namespace {

bool Same(const absl::optional<Waiting>& a, const absl::optional<Waiting>& b) {
  if (a.has_value() != b.has_value()) return false;
  return !a || (a->id == b->id && a->tokens == b->tokens &&
                a->deadline == b->deadline);
}

bool Always(uint64_t, Micros) { return true; }

using LowTree = WaitingTree;
using HighTree = LengthTree<8>;  // 1,000 requests: four levels

TEST(WaitingTreeTest, EmptyTreeHasNoPrefix) {
  const WaitingTree tree;
  const Prefix prefix = tree.LongestPrefix(Always);
  EXPECT_EQ(prefix.tokens, 0u);
  EXPECT_FALSE(prefix.after);
  EXPECT_FALSE(tree.Soonest(absl::nullopt));
}

TEST(WaitingTreeTest, RequestsWithoutDeadlineAreFoundToo) {
  WaitingTree tree;
  tree.Insert(WaitingRequest(3, 10, kNever));
  EXPECT_EQ(tree.Soonest(absl::nullopt), RequestId{3});
}

// A sorted vector that gives the same answers as the tree, under random inserts
// and erases.
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

  Prefix WithTokensBelow(uint64_t limit, Micros floor) const {
    Prefix p;
    for (const Waiting& r : all_) {
      const Micros deadline = std::min(p.deadline, r.deadline);
      if (p.tokens + r.tokens >= limit || deadline <= floor) {
        p.after = r;
        break;
      }
      p.tokens += r.tokens;
      p.deadline = deadline;
    }
    return p;
  }

  absl::optional<RequestId> Soonest(
      const absl::optional<Waiting>& after) const {
    absl::optional<Waiting> best;
    for (const Waiting& r : all_) {
      if (after && !Shorter(r, *after)) break;
      if (!best || Sooner(r, *best)) best = r;
    }
    if (!best) return absl::nullopt;
    return best->id;
  }

 private:
  std::vector<Waiting> all_;
};

// A tree and its model, which are asked the same questions.
template <typename Tree>
class Pair {
 public:
  void Insert(const Waiting& r) {
    tree_.Insert(r);
    model_.Insert(r);
  }
  void EraseAt(size_t i) { tree_.Erase(model_.RemoveAt(i)); }
  size_t size() const { return model_.all().size(); }
  const Tree& tree() const { return tree_; }

  void ExpectSame(uint64_t limit, Micros floor) const {
    ASSERT_EQ(tree_.size(), size());
    const Prefix found =
        tree_.LongestPrefix([&](uint64_t tokens, Micros soonest) {
          return tokens < limit && soonest > floor;
        });
    const Prefix expected = model_.WithTokensBelow(limit, floor);
    ASSERT_EQ(found.tokens, expected.tokens);
    ASSERT_EQ(found.deadline, expected.deadline);
    ASSERT_TRUE(Same(found.after, expected.after));
    ASSERT_EQ(tree_.Soonest(found.after), model_.Soonest(found.after));
  }
  // Compares both for the prefix before each request.
  void ExpectSameEverywhere() const {
    uint64_t tokens = 0;
    for (const Waiting& r : model_.all()) {
      ASSERT_NO_FATAL_FAILURE(ExpectSame(tokens += r.tokens, -1));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSame(UINT64_MAX, -1));
  }

 private:
  Tree tree_;
  Model model_;
};

template <typename Tree>
class WaitingTreeShapeTest : public testing::Test {
 protected:
  static constexpr size_t kCount = 1000;
  // Returns a request with a unique deadline and, if `apart` > 0, a unique
  // length; deadlines are in no order of i.
  static Waiting Nth(size_t i, uint32_t apart) {
    const auto n = static_cast<uint32_t>(i);
    return WaitingRequest(i, 7 + apart * n,
                          static_cast<Micros>(i * 389 % kCount));
  }
  void ExpectEmptyTree() {
    EXPECT_EQ(pair_.tree().size(), 0u);
    EXPECT_EQ(pair_.tree().nodes(), 1u);
    EXPECT_FALSE(pair_.tree().LongestPrefix(Always).after);
  }

  Pair<Tree> pair_;
};
using Trees = testing::Types<LowTree, HighTree>;
TYPED_TEST_SUITE(WaitingTreeShapeTest, Trees);

TYPED_TEST(WaitingTreeShapeTest, LongerAndLongerThenErasedFromTheShortest) {
  for (size_t i = 0; i < this->kCount; ++i) {
    this->pair_.Insert(this->Nth(i, 1));
  }
  ASSERT_NO_FATAL_FAILURE(this->pair_.ExpectSameEverywhere());
  while (this->pair_.size() > 0) {
    this->pair_.EraseAt(0);
    ASSERT_NO_FATAL_FAILURE(this->pair_.ExpectSame(9000, 100));
  }
  this->ExpectEmptyTree();
}

TYPED_TEST(WaitingTreeShapeTest, ShorterAndShorterThenErasedFromTheLongest) {
  for (size_t i = this->kCount; i-- > 0;) this->pair_.Insert(this->Nth(i, 1));
  ASSERT_NO_FATAL_FAILURE(this->pair_.ExpectSameEverywhere());
  while (this->pair_.size() > 0) {
    this->pair_.EraseAt(this->pair_.size() - 1);
    ASSERT_NO_FATAL_FAILURE(this->pair_.ExpectSame(9000, 100));
  }
  this->ExpectEmptyTree();
}

TYPED_TEST(WaitingTreeShapeTest, EqualLengthsAreInOrderOfId) {
  for (size_t i = 0; i < this->kCount; ++i) {
    this->pair_.Insert(this->Nth(i * 77 % this->kCount, 0));
  }
  ASSERT_NO_FATAL_FAILURE(this->pair_.ExpectSameEverywhere());
}

TYPED_TEST(WaitingTreeShapeTest, NodesGoAsRequestsGo) {
  for (size_t i = 0; i < this->kCount; ++i) {
    this->pair_.Insert(this->Nth(i, 1));
  }
  const size_t many = this->pair_.tree().nodes();
  // Every node keeps a few parts, whichever requests go.
  while (this->pair_.size() > this->kCount / 10) {
    this->pair_.EraseAt(this->pair_.size() * 389 % 997 % this->pair_.size());
  }
  EXPECT_LT(this->pair_.tree().nodes(), many / 3);
  ASSERT_NO_FATAL_FAILURE(this->pair_.ExpectSameEverywhere());
  while (this->pair_.size() > 1) this->pair_.EraseAt(1);
  EXPECT_EQ(this->pair_.tree().nodes(), 1u);
  for (size_t i = 1; i < this->kCount; ++i) {
    this->pair_.Insert(this->Nth(i, 1));
  }
  EXPECT_EQ(this->pair_.tree().nodes(), many);
}

// The tree grows and shrinks several times.
TYPED_TEST(WaitingTreeShapeTest, AnswersAsASortedListDoes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto upto = [&](uint64_t n) { return random() % (n + 1); };
  Pair<TypeParam>& pair = this->pair_;
  uint64_t next_id = 0;
  size_t most = 0;
  for (int round = 0; round < 20'000; ++round) {
    const bool grows = round / 2500 % 2 == 0;
    if (pair.size() == 0 || upto(99) < (grows ? 65 : 35)) {
      // The order of ids does not follow from the order of arrival.
      pair.Insert(WaitingRequest(++next_id * 0x9e3779b97f4a7c15u,
                                 static_cast<uint32_t>(1 + upto(50)),
                                 static_cast<Micros>(upto(300))));
    } else {
      pair.EraseAt(upto(pair.size() - 1));
    }
    most = std::max(most, pair.size());
    const bool deep = upto(1) == 0;
    const Micros floor = deep ? -1 : static_cast<Micros>(upto(30));
    ASSERT_NO_FATAL_FAILURE(pair.ExpectSame(upto(30 * pair.size()), floor));
  }
  EXPECT_GT(most, 500u);
}

}  // namespace
}  // namespace fineserve::sched

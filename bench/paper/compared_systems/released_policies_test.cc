#include "bench/paper/compared_systems/released_policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::bench {
namespace {

using sched::ModelId;
using sched::Queued;
using sched::ReplicaId;
using sched::RequestId;
using testing::ElementsAre;
using testing::IsEmpty;
using Kind = ReleasedPolicy::Kind;

// One model with one engine, whose load the test sets.
class OneEngine : public sched::Host {
 public:
  std::vector<ReplicaId> EnginesOf(ModelId) const override {
    return {ReplicaId{0}};
  }
  sched::Predictor Predict(ReplicaId, sched::Micros) const override {
    return predictor;
  }
  bool Takes(ReplicaId, const Queued&, sched::Micros) override { return false; }
  void Start(const Queued& q, ReplicaId, sched::Micros) override {
    started.push_back(sched::Number(q.waiting.id));
  }
  void Drop(const Queued& q, sched::Micros) override {
    dropped.push_back(sched::Number(q.waiting.id));
  }

  sched::Predictor predictor;
  std::vector<uint64_t> started, dropped;
};

Queued Request(uint64_t id, uint32_t tokens, sched::Micros deadline) {
  Queued q;
  q.waiting = {tokens, RequestId{id}, deadline};
  q.model = ModelId{0};
  return q;
}

// 10 µs a token.
ReleasedPolicy Policy(Kind kind, uint32_t most_sequences = 256) {
  return ReleasedPolicy(kind, {{10, most_sequences}});
}

TEST(ReleasedPolicyTest, RequestThatIsLateAloneIsDropped) {
  OneEngine host;
  ReleasedPolicy policy = Policy(Kind::kAlgorithm2);
  policy.Add(Request(1, 100, 1000));  // 1,000 µs: not before its deadline
  policy.Add(Request(2, 100, 1001));
  policy.Decide(0, &host);
  EXPECT_THAT(host.dropped, ElementsAre(1));
  EXPECT_THAT(host.started, ElementsAre(2));
}

TEST(ReleasedPolicyTest, AlgorithmTwoTakesTheBatchForOneAndPrismDoesNot) {
  // Together the requests take 4,000 µs; one after the other, request 1 ends
  // after 1,000 µs.
  const auto batch = {Request(1, 100, 2000), Request(2, 300, 5000)};
  OneEngine together, in_turn;
  ReleasedPolicy algorithm2 = Policy(Kind::kAlgorithm2);
  ReleasedPolicy prism = Policy(Kind::kPrism);
  for (const Queued& q : batch) {
    algorithm2.Add(q);
    prism.Add(q);
  }
  algorithm2.Decide(0, &together);
  prism.Decide(0, &in_turn);
  EXPECT_THAT(together.started, ElementsAre(1)) << "the longest leaves";
  EXPECT_THAT(together.dropped, IsEmpty()) << "and may be tried again";
  EXPECT_THAT(in_turn.started, ElementsAre(1, 2));
}

TEST(ReleasedPolicyTest, FcfsDropsNoneAndEndsWithTheOneThatExceeds) {
  OneEngine host;
  ReleasedPolicy policy = Policy(Kind::kFcfs);
  for (uint64_t id = 1; id <= 3; ++id) policy.Add(Request(id, 1500, 1));
  policy.Decide(0, &host);
  EXPECT_THAT(host.started, ElementsAre(1, 2)) << "2,048 tokens a batch";
  EXPECT_THAT(host.dropped, IsEmpty());
  EXPECT_EQ(policy.NextCheck(), sched::kNever);
}

TEST(ReleasedPolicyTest, NothingStartsWithMoreThanThreeInPrefill) {
  OneEngine host;
  ReleasedPolicy policy = Policy(Kind::kFcfs);
  for (uint64_t id = 1; id <= 4; ++id) policy.Add(Request(id, 100, 1000000));
  policy.Decide(0, &host);
  ASSERT_THAT(host.started, ElementsAre(1, 2, 3, 4));
  policy.Add(Request(5, 100, 1000000));
  host.predictor.running = 4;
  host.predictor.backlog_tokens = 400;
  policy.Decide(1, &host);
  EXPECT_EQ(host.started.size(), 4u);
  host.predictor.backlog_tokens = 300;  // the first is through
  policy.Decide(2, &host);
  EXPECT_EQ(host.started.back(), 5u);
}

TEST(ReleasedPolicyTest, NothingStartsBeyondTheBatch) {
  OneEngine host;
  ReleasedPolicy policy = Policy(Kind::kFcfs, 2);
  host.predictor.running = 3;
  policy.Add(Request(1, 100, 1000000));
  policy.Decide(0, &host);
  EXPECT_THAT(host.started, IsEmpty());
}

TEST(ReleasedPolicyTest, NextCheckIsNeverInThePast) {
  OneEngine host;
  ReleasedPolicy policy = Policy(Kind::kPrism, 1);
  host.predictor.running = 2;
  policy.Add(Request(1, 100, 500));
  policy.Add(Request(2, 100, 5000));
  policy.Decide(1000, &host);
  EXPECT_EQ(policy.NextCheck(), 5000) << "or the simulation would not go on";
}

}  // namespace
}  // namespace fineserve::bench

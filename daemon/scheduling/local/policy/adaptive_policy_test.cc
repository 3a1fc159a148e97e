#include "daemon/scheduling/local/policy/adaptive_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "daemon/scheduling/local/policy/testdata/fake_host.h"
#include "daemon/scheduling/local/policy/testdata/naive_batch.h"
#include "daemon/scheduling/local/policy/testdata/requests.h"
#include "daemon/scheduling/local/policy/testdata/rounds.h"

namespace fineserve::sched {
namespace {

constexpr ModelId kModel{0};

Queued Request(uint64_t id, uint32_t tokens, Micros deadline,
               int32_t priority = 0, uint64_t tenant = 0) {
  return {{tokens, RequestId{id}, deadline}, kModel, 0, priority, tenant};
}

TEST(AdaptivePolicyTest, HigherPriorityGoesFirst) {
  AdaptivePolicy policy(0);
  FakeHost host = OneEngine();
  host.engines[kEngine].caps = {1, 1000};
  policy.Add(Request(1, 10, 500));
  policy.Add(Request(2, 10, 900, 5));
  policy.Decide(100, &host);
  EXPECT_EQ(host.engines[kEngine].started, IdsOf({2}));
}

// The long request of higher priority waits for the prompts that its engine
// fills; otherwise, later short requests would keep the engine filling forever.
TEST(AdaptivePolicyTest, AnEngineIsKeptForTheHigherPriority) {
  AdaptivePolicy policy(0);
  FakeHost host = OneEngine();
  host.engines[ReplicaId{2}] = {kModel, kTenPerToken};
  for (auto& [id, engine] : host.engines) {
    engine.caps = {8, 100};
    engine.started = IdsOf({9});
    engine.started_tokens = 50;
  }
  policy.Add(Request(1, 200, 1'000'000, 100));
  policy.Add(Request(2, 10, 1'000'000));
  policy.Decide(100, &host);
  EXPECT_EQ(host.engines[kEngine].started, IdsOf({9}));
  EXPECT_EQ(host.engines[ReplicaId{2}].started, IdsOf({9}));
  host.engines[ReplicaId{2}].started.clear();
  policy.Decide(200, &host);
  EXPECT_EQ(host.engines[ReplicaId{2}].started, IdsOf({1}));
  EXPECT_EQ(host.engines[kEngine].started, IdsOf({9, 2}));
}

TEST(AdaptivePolicyTest, WithoutAnEngineAllWaitUntilTheirDeadlines) {
  AdaptivePolicy policy(0);
  FakeHost host;
  policy.Add(Request(1, 10, 500));
  policy.Decide(100, &host);
  EXPECT_TRUE(host.dropped.empty());
  EXPECT_EQ(policy.NextCheck(), 500);
  policy.Decide(500, &host);
  EXPECT_EQ(host.dropped, IdsOf({1}));
  EXPECT_EQ(policy.NextCheck(), kNever);
}

TEST(AdaptivePolicyTest, NextCheckIsWhenTheFirstBecomesLate) {
  AdaptivePolicy policy(0);
  FakeHost host = OneEngine();
  host.engines[kEngine].caps.requests = 0;
  policy.Add(Request(1, 10, 500));
  policy.Add(Request(2, 30, 600));
  policy.Decide(100, &host);
  EXPECT_EQ(policy.NextCheck(), 600 - 30 * 10);
  policy.Decide(300, &host);
  EXPECT_EQ(host.dropped, IdsOf({2}));
}

TEST(AdaptivePolicyTest, NextEngineTakesRoomThatOneLeaves) {
  AdaptivePolicy policy(0);
  FakeHost host = OneEngine();
  host.engines[ReplicaId{2}] = {kModel, kTenPerToken};
  host.engines[ReplicaId{2}].predictor.kappa = 2;
  policy.Add(Request(1, 10, 250));
  policy.Add(Request(2, 10, 350));
  policy.Decide(100, &host);
  EXPECT_EQ(host.engines[kEngine].started, IdsOf({1}));
  EXPECT_EQ(host.engines[ReplicaId{2}].started, IdsOf({2}));
}

TEST(AdaptivePolicyTest, FlowThatIsOwedGoesBeforeShorterOnes) {
  AdaptivePolicy policy(0.5);
  FakeHost host = OneEngine();
  // A long request that fits alone, but never together with the short ones.
  policy.Add(Request(1, 1000, 10'400));
  uint64_t id = 10;
  Micros now = 0;
  bool started = false;
  uint64_t short_tokens = 0;
  while (!started && now < 400) {
    policy.Add(Request(id, 100, now + 1100));
    policy.Decide(now, &host);
    for (const RequestId r : host.engines[kEngine].started) {
      started |= r == RequestId{1};
      short_tokens += 100;
    }
    host.Forget();
    ++id;
    ++now;
  }
  ASSERT_TRUE(started);
  // Two flows share half of what is started.
  EXPECT_LE(short_tokens, 1000u * 2 * 2 + 200);
}

TEST(AdaptivePolicyTest, FlowThatIsOwedKeepsAnEngineThatHasNoRoomYet) {
  AdaptivePolicy policy(0.5);
  FakeHost host = OneEngine();
  FakeHost::Engine& engine = host.engines[kEngine];
  policy.Add(Request(1, 1000, 2'000'000));
  size_t short_ones = 0;
  for (uint64_t id = 10; id < 50; ++id) {
    policy.Add(Request(id, 100, 1'000'000));
    // The engine fills something, so that a request longer than T_max has to
    // wait.
    engine.started = {RequestId{0}};
    engine.started_tokens = 0;
    engine.caps = {UINT32_MAX, 500};
    policy.Decide(500, &host);
    short_ones += engine.started.size() - 1;
  }
  // The flow is owed half of 2,000 tokens: then it is the long request's turn,
  // and it keeps its turn.
  EXPECT_EQ(short_ones, 20u);
  host.Forget();
  policy.Decide(500, &host);
  ASSERT_FALSE(engine.started.empty());
  EXPECT_EQ(engine.started[0], RequestId{1});
}

// Makes random arrivals, departures and decisions, and compares each decision
// with the paper's loop over all waiting requests.
class RandomQueue {
 public:
  // `coarse`: all times are whole milliseconds, so that first tokens often fall
  // on deadlines.
  RandomQueue(uint64_t seed, bool coarse)
      : random_(seed), coarse_(coarse), host_(OneEngine()) {}

  void Step() {
    now_ += coarse_ ? Millis(2) : static_cast<Micros>(UpTo(3000));
    for (uint64_t n = UpTo(4); n > 0; --n) Arrive();
    if (!waiting_.empty() && UpTo(5) == 0) Leave();
    FakeHost::Engine& engine = host_.engines[kEngine];
    engine.predictor =
        coarse_ ? Predictor{{0, 1000, 0}, 2048, 0, UpTo(3), 1} : AnyPredictor();
    engine.caps = {static_cast<uint32_t>(UpTo(4)), UpTo(4000)};
    Compare();
  }

  uint64_t started = 0, dropped = 0, in_one = 0;

 private:
  uint64_t UpTo(uint64_t n) { return random_() % (n + 1); }
  Micros Millis(uint64_t n) { return static_cast<Micros>(1000 * UpTo(n)); }

  Predictor AnyPredictor() {
    return {{static_cast<double>(UpTo(9000)), static_cast<double>(1 + UpTo(60)),
             50},
            2048,
            static_cast<uint32_t>(UpTo(64)),
            UpTo(2000),
            0.5 + static_cast<double>(UpTo(100)) / 100};
  }

  void Arrive() {
    const bool short_one = coarse_ || UpTo(1) == 0;
    const auto tokens = static_cast<uint32_t>(1 + UpTo(short_one ? 3 : 1500));
    const Micros slo =
        coarse_ ? Millis(20) : static_cast<Micros>(UpTo(150'000)) - 500;
    Queued r = Request(++next_id_, tokens, now_ + slo);
    r.arrival = now_;
    waiting_.push_back(r.waiting);
    queued_.push_back(r);
    policy_.Add(r);
  }

  void Leave() {
    const size_t i = UpTo(waiting_.size() - 1);
    policy_.Remove(queued_[i]);
    Erase(waiting_[i].id);
  }

  void Erase(RequestId id) {
    for (size_t i = 0; i < waiting_.size(); ++i) {
      if (waiting_[i].id != id) continue;
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      queued_.erase(queued_.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
    FAIL() << "request " << Number(id) << " was decided twice";
  }

  void Compare() {
    const FakeHost::Engine& engine = host_.engines[kEngine];
    const Batch naive =
        NaiveBatch(waiting_, now_, engine.predictor, engine.caps);
    policy_.Decide(now_, &host_);
    ASSERT_EQ(engine.started, naive.start);
    for (const RequestId id : host_.dropped) {
      ASSERT_NE(std::find(naive.late.begin(), naive.late.end(), id),
                naive.late.end())
          << Number(id) << " was dropped and is not late";
    }
    started += engine.started.size();
    dropped += host_.dropped.size();
    if (engine.started.size() > 1) ++in_one;
    for (const RequestId id : engine.started) Erase(id);
    for (const RequestId id : host_.dropped) Erase(id);
    host_.Forget();
  }

  std::mt19937_64 random_;
  const bool coarse_;
  FakeHost host_;
  AdaptivePolicy policy_{0};
  std::vector<Waiting> waiting_;
  std::vector<Queued> queued_;
  uint64_t next_id_ = 0;
  Micros now_ = 1'000'000;
};

class AdaptivePolicyPropertyTest : public ::testing::TestWithParam<bool> {};

TEST_P(AdaptivePolicyPropertyTest, StartsWhatThePapersLoopStarts) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomQueue queue(seed, GetParam());
  for (int round = 0; round < kRounds && !testing::Test::HasFatalFailure();
       ++round) {
    queue.Step();
  }
  EXPECT_GT(queue.started, kRounds / 5u) << "the instances are one-sided";
  EXPECT_GT(queue.dropped, kRounds / 5u) << "the instances are one-sided";
  EXPECT_GT(queue.in_one, kRounds / 50u) << "the instances are one-sided";
}

INSTANTIATE_TEST_SUITE_P(Times, AdaptivePolicyPropertyTest, ::testing::Bool(),
                         [](const auto& param) {
                           return param.param ? "Coarse" : "Fine";
                         });

TEST(AdaptivePolicyTest, ACrowdOfLateOnesIsRefusedOverSeveralDecisions) {
  AdaptivePolicy policy(0);
  FakeHost host = OneEngine();
  for (uint64_t id = 1; id <= 1000; ++id) policy.Add(Request(id, 10, 50));
  size_t reported = 0;
  for (int decisions = 0; policy.NextCheck() <= 100; ++decisions) {
    ASSERT_LT(decisions, 100);
    policy.Decide(100, &host);
    ASSERT_LE(host.dropped.size(), 1000u);
    reported += host.dropped.size();
    host.Forget();
  }
  EXPECT_EQ(reported, 1000u);
}

}  // namespace
}  // namespace fineserve::sched

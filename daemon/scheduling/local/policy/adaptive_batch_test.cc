#include "daemon/scheduling/local/policy/adaptive_batch.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "daemon/scheduling/local/policy/testdata/naive_batch.h"
#include "daemon/scheduling/local/policy/testdata/requests.h"
#include "daemon/scheduling/local/policy/testdata/rounds.h"
#include "daemon/scheduling/local/predict/predictor.h"

namespace fineserve::sched {
namespace {

constexpr Caps kNoCaps{UINT32_MAX, UINT64_MAX};

Micros TenPerToken(uint64_t tokens) { return static_cast<Micros>(10 * tokens); }

struct BatchCase {
  std::string name;
  std::vector<Waiting> waiting;
  Caps caps;
  std::vector<uint64_t> start, late;
};

class FormBatchTest : public ::testing::TestWithParam<BatchCase> {};

TEST_P(FormBatchTest, IsAsInThePaper) {
  const BatchCase& c = GetParam();
  const Batch batch = FormBatch(c.waiting, 100, TenPerToken, c.caps);
  EXPECT_EQ(batch.start, IdsOf(c.start));
  EXPECT_EQ(batch.late, IdsOf(c.late));
  const Batch naive = NaiveBatch(c.waiting, 100, TenPerToken, c.caps);
  EXPECT_EQ(naive.start, IdsOf(c.start)) << "the reference";
  EXPECT_EQ(naive.late, IdsOf(c.late)) << "the reference";
}

INSTANTIATE_TEST_SUITE_P(
    Cases, FormBatchTest,
    ::testing::Values(
        BatchCase{"NobodyWaits", {}, kNoCaps, {}, {}},
        BatchCase{"SoonestDeadlineFirst",
                  {WaitingRequest(1, 1, 900), WaitingRequest(2, 1, 800)},
                  kNoCaps,
                  {2, 1},
                  {}},
        BatchCase{"LongestIsShed",
                  {WaitingRequest(1, 10, 250), WaitingRequest(2, 20, 900)},
                  kNoCaps,
                  {1},
                  {}},
        BatchCase{"LongestIsShedEvenIfItIsTheAnchor",
                  {WaitingRequest(1, 20, 350), WaitingRequest(2, 10, 900)},
                  kNoCaps,
                  {2},
                  {}},
        BatchCase{"AmongEqualsTheLargerIdLeaves",
                  {WaitingRequest(7, 10, 250), WaitingRequest(3, 10, 250)},
                  kNoCaps,
                  {3},
                  {}},
        BatchCase{"DeadlineMustBeBeatenNotMet",
                  {WaitingRequest(1, 10, 200), WaitingRequest(2, 10, 201)},
                  kNoCaps,
                  {2},
                  {1}},
        BatchCase{"ExpiredDeadlineIsLateNotFirst",
                  {WaitingRequest(1, 1, 50), WaitingRequest(2, 1, 500)},
                  kNoCaps,
                  {2},
                  {1}},
        BatchCase{"NoRequestsAllowedAdmitsNobody",
                  {WaitingRequest(1, 1, 500)},
                  Caps{0, 100},
                  {},
                  {}},
        BatchCase{"TrimStopsAtTheFirstThatDoesNotFit",
                  {WaitingRequest(1, 5, 600), WaitingRequest(2, 6, 700),
                   WaitingRequest(3, 1, 800)},
                  Caps{9, 10},
                  {1},
                  {}},
        BatchCase{"FirstLongerThanTmaxIsChunked",
                  {WaitingRequest(1, 30, 600), WaitingRequest(2, 1, 700)},
                  Caps{9, 10},
                  {1},
                  {}}),
    [](const auto& param) { return param.param.name; });

TEST(FormBatchTest, NonMonotoneTtftStopsWhereThePaperStops) {
  // Each request alone is fast, the first two together are slow, and all three
  // together are fast.
  const auto ttft = [](uint64_t tokens) -> Micros {
    return tokens == 5 ? 1000 : 10;
  };
  const std::vector<Waiting> waiting = {WaitingRequest(1, 2, 500),
                                        WaitingRequest(2, 3, 500),
                                        WaitingRequest(3, 4, 500)};
  EXPECT_EQ(FormBatch(waiting, 100, ttft, kNoCaps).start, IdsOf({1, 2, 3}));
}

class RandomInstance {
 public:
  explicit RandomInstance(std::mt19937_64* random) : random_(*random) {
    const uint64_t n = UpTo(40);
    // Few values, so that ties of length and deadline are common.
    const uint64_t lengths = 1 + UpTo(UpTo(1) ? 3 : 2000);
    const uint64_t span = 1 + UpTo(UpTo(1) ? 5 : 400'000);
    for (uint64_t i = 0; i < n; ++i) {
      waiting.push_back(
          WaitingRequest(i * 7919 % 101,  // no order, no two alike
                         static_cast<uint32_t>(1 + UpTo(lengths)),
                         now - 1000 + static_cast<Micros>(UpTo(span))));
    }
    predictor = {
        {static_cast<double>(UpTo(9000)), static_cast<double>(UpTo(150)),
         static_cast<double>(UpTo(60))},
        static_cast<uint32_t>(1 + UpTo(2048)),
        static_cast<uint32_t>(UpTo(64)),
        UpTo(3000),
        0.25 + static_cast<double>(UpTo(100)) / 50};
    caps = {static_cast<uint32_t>(UpTo(12)), UpTo(8000)};
  }

  uint64_t UpTo(uint64_t n) { return random_() % (n + 1); }

  Micros now = 1'000'000;
  std::vector<Waiting> waiting;
  Predictor predictor;
  Caps caps;

 private:
  std::mt19937_64& random_;
};

TEST(FormBatchPropertyTest, AgreesWithThePapersLoop) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  uint64_t started = 0, shed = 0, late = 0;
  for (int round = 0; round < kRounds; ++round) {
    const RandomInstance i(&random);
    const Batch ours = FormBatch(i.waiting, i.now, i.predictor, i.caps);
    const Batch naive = NaiveBatch(i.waiting, i.now, i.predictor, i.caps);
    ASSERT_EQ(ours.start, naive.start) << "round " << round;
    ASSERT_EQ(ours.late, naive.late) << "round " << round;
    started += ours.start.size();
    late += ours.late.size();
    shed += i.waiting.size() - ours.start.size() - ours.late.size();
  }
  EXPECT_GT(started, kRounds / 5u) << "the instances are one-sided";
  EXPECT_GT(shed, kRounds / 5u) << "the instances are one-sided";
  EXPECT_GT(late, kRounds / 5u) << "the instances are one-sided";
}

TEST(FormBatchPropertyTest, AgreesWhereTtftIsNotMonotone) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < kRounds / 5; ++round) {
    const RandomInstance i(&random);
    const auto ttft = [](uint64_t tokens) -> Micros {
      return static_cast<Micros>(tokens * 2654435761u % 100'000);
    };
    const Batch ours = FormBatch(i.waiting, i.now, ttft, i.caps);
    const Batch naive = NaiveBatch(i.waiting, i.now, ttft, i.caps);
    ASSERT_EQ(ours.start, naive.start) << "round " << round;
    ASSERT_EQ(ours.late, naive.late) << "round " << round;
  }
}

}  // namespace
}  // namespace fineserve::sched

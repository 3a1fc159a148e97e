#include "daemon/proxy/replica_choice/replica_order.h"

#include <gtest/gtest.h>

#include <map>

namespace fineserve::proxy {
namespace {

ModelOnGpu With(bool lets_in, bool serves) {
  ModelOnGpu gpu;
  gpu.Add(lets_in, serves, 1);
  return gpu;
}

TEST(ModelOnGpuTest, PlanHealthDaemonAndPresenceCountInThisOrder) {
  EXPECT_EQ(With(true, true).Trouble(true, false), 0);
  EXPECT_LT(With(true, true).Trouble(true, /*is_away=*/true),
            With(true, true).Trouble(false, false));
  EXPECT_LT(With(true, true).Trouble(false, true),
            With(true, false).Trouble(true, false));
  EXPECT_LT(With(true, false).Trouble(false, true),
            With(false, true).Trouble(true, false));
}

TEST(ModelOnGpuTest, EngineThatIsNotLetInDoesNotAnswerForOneThatIs) {
  ModelOnGpu gpu = With(/*lets_in=*/false, /*serves=*/true);
  gpu.Add(/*lets_in=*/true, /*serves=*/false, 2);
  EXPECT_EQ(gpu.Trouble(true, false), With(true, false).Trouble(true, false));
  gpu.Add(true, true, 3);
  EXPECT_EQ(gpu.Trouble(true, false), 0);
  EXPECT_EQ(gpu.target_rate(), 6);
}

TEST(ModelOnGpuTest, HasNoneUntilOneIsAdded) {
  EXPECT_FALSE(ModelOnGpu().any());
  EXPECT_TRUE(With(false, false).any());
}

TEST(ReplicaOrderTest, GpuThatCanStartSomethingComesFirst) {
  std::vector<Candidate> all = {{.place = 0, .full = true, .cost = 0},
                                {.place = 1, .cost = 9000},
                                {.place = 2, .trouble = 1}};
  EXPECT_FALSE(OrderReplicas(&all));
  EXPECT_EQ(all[0].place, 1u);
  EXPECT_EQ(all[1].place, 0u);
  EXPECT_EQ(all[2].place, 2u);
}

TEST(ReplicaOrderTest, LoadDecidesWhereWaitsAreTheSame) {
  std::vector<Candidate> all = {{.place = 0, .load = 700},
                                {.place = 1, .load = 600}};
  OrderReplicas(&all);
  EXPECT_EQ(all[0].place, 1u);
}

// A full replica gets nothing while another can start a request, and its share
// afterwards.
TEST(ReplicaOrderTest, AFullReplicaIsRepaidLater) {
  std::map<size_t, double> due = {{0, 0}, {1, 0}};
  const auto first = [&](bool full) {
    std::vector<Candidate> all = {
        {.place = 0, .full = full, .target_rate = 1, .due = &due[0]},
        {.place = 1, .target_rate = 1, .due = &due[1]}};
    EXPECT_TRUE(OrderReplicas(&all));
    return all[0].place;
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(first(true), 1u);
  std::map<size_t, int> got;
  for (int i = 0; i < 20; ++i) ++got[first(false)];
  EXPECT_EQ(got[0], 15);
  for (int i = 0; i < 1000; ++i) first(true);
  EXPECT_EQ(due[0], kMostDue);
}

TEST(RecentPrefillTest, OldWorkWeighsLess) {
  RecentPrefill recent;
  recent.Sent(1000, 0);
  EXPECT_DOUBLE_EQ(recent.Tokens(0), 1000);
  const uint64_t later_ns = 30'000'000'000;
  EXPECT_NEAR(recent.Tokens(later_ns), 368, 1);
  recent.Sent(100, later_ns);
  EXPECT_NEAR(recent.Tokens(later_ns), 468, 1);
}

TEST(PredictedWaitTest, SentRequestsAreAddedAndTimeIsTaken) {
  PredictedWait wait(5000, /*full=*/true, /*away=*/true, 0);
  EXPECT_TRUE(wait.away());
  wait.Sent(100);
  EXPECT_FALSE(wait.away()) << "it has been asked for";
  EXPECT_EQ(wait.Us(10, 2'000'000), 4000);
  EXPECT_EQ(wait.Us(10, 2'300'000), 3000) << "whole milliseconds";
  EXPECT_EQ(wait.Us(10, 9'000'000), 0);
  EXPECT_TRUE(wait.full()) << "until something ends there";
}

}  // namespace

}  // namespace fineserve::proxy

#include <gtest/gtest.h>

#include <vector>

#include "daemon/scheduling/local/policy/fcfs_policy.h"
#include "daemon/scheduling/local/policy/moore_hodgson_policy.h"
#include "daemon/scheduling/local/policy/testdata/fake_host.h"
#include "daemon/scheduling/local/policy/testdata/requests.h"

namespace fineserve::sched {
namespace {

Queued ArrivedRequest(uint64_t id, uint32_t tokens, Micros deadline,
                      Micros arrival = 0, ModelId model = ModelId{0}) {
  return {{tokens, RequestId{id}, deadline}, model, arrival};
}

TEST(FcfsPolicyTest, OrderIsOfArrivalWhateverTheDeadlines) {
  FcfsPolicy policy;
  FakeHost host = OneEngine();
  policy.Add(ArrivedRequest(1, 10, 900, 7));
  policy.Add(ArrivedRequest(2, 10, 500, 8));
  policy.Add(ArrivedRequest(3, 10, 50, 6));  // expired, and served all the same
  policy.Decide(100, &host);
  EXPECT_EQ(host.engines[kEngine].started, IdsOf({3, 1, 2}));
  EXPECT_TRUE(host.dropped.empty());
}

TEST(FcfsPolicyTest, NoRequestOvertakesOneThatWaitsForRoom) {
  FcfsPolicy policy;
  FakeHost host = OneEngine();
  host.engines[kEngine].caps = {9, 20};
  policy.Add(ArrivedRequest(1, 15, 900, 1));
  policy.Add(ArrivedRequest(2, 10, 900, 2));
  policy.Add(ArrivedRequest(3, 5, 900, 3));
  policy.Decide(100, &host);
  EXPECT_EQ(host.engines[kEngine].started, IdsOf({1}));
}

TEST(FcfsPolicyTest, RemovedOnesAreNotStarted) {
  FcfsPolicy policy;
  FakeHost host = OneEngine();
  policy.Add(ArrivedRequest(1, 10, 900));
  policy.Remove(ArrivedRequest(1, 10, 900));
  policy.Decide(100, &host);
  EXPECT_TRUE(host.engines[kEngine].started.empty());
}

TEST(MooreHodgsonPolicyTest, LongestIsPutOffForTheGreaterNumber) {
  MooreHodgsonPolicy policy;
  FakeHost host = OneEngine();
  // From 100 on, one after the other, they end at 400 and 500; the third would
  // end at 600.
  policy.Add(ArrivedRequest(1, 30, 450));
  policy.Add(ArrivedRequest(2, 10, 510));
  policy.Add(ArrivedRequest(3, 10, 520));
  policy.Decide(100, &host);
  EXPECT_EQ(host.engines[kEngine].started, IdsOf({2, 3}));
  EXPECT_TRUE(host.dropped.empty()) << "alone the first could still make it";
}

TEST(MooreHodgsonPolicyTest, RequestThatIsLateByItselfIsDropped) {
  MooreHodgsonPolicy policy;
  FakeHost host = OneEngine();
  host.engines[kEngine].caps.requests = 0;
  policy.Add(ArrivedRequest(1, 30, 450));
  policy.Decide(100, &host);
  EXPECT_EQ(policy.NextCheck(), 150);
  policy.Decide(150, &host);
  EXPECT_EQ(host.dropped, IdsOf({1}));
}

TEST(MooreHodgsonPolicyTest, OneQueueForAllModels) {
  MooreHodgsonPolicy policy;
  FakeHost host = OneEngine();
  host.engines[ReplicaId{2}] = {ModelId{1}, kTenPerToken};
  // Each model alone could serve its request, but both together cannot.
  policy.Add(ArrivedRequest(1, 30, 500, 0, ModelId{0}));
  policy.Add(ArrivedRequest(2, 20, 520, 0, ModelId{1}));
  policy.Decide(100, &host);
  EXPECT_TRUE(host.engines[kEngine].started.empty());
  EXPECT_EQ(host.engines[ReplicaId{2}].started, IdsOf({2}));
}

TEST(MooreHodgsonPolicyTest, FullEngineDoesNotHoldUpAnother) {
  MooreHodgsonPolicy policy;
  FakeHost host = OneEngine();
  host.engines[kEngine].caps.requests = 0;
  host.engines[ReplicaId{2}] = {ModelId{1}, kTenPerToken};
  policy.Add(ArrivedRequest(1, 10, 900, 0, ModelId{0}));
  policy.Add(ArrivedRequest(2, 10, 950, 0, ModelId{1}));
  policy.Decide(100, &host);
  EXPECT_EQ(host.engines[ReplicaId{2}].started, IdsOf({2}));
}

}  // namespace
}  // namespace fineserve::sched

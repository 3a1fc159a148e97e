#include "daemon/proxy/replica_choice/tied_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/proxy/replica_choice/replica_order.h"

namespace fineserve::proxy {
namespace {

using Answer = TiedRequest::Answer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Places 7, 8, … with these troubles.
TiedRequest With(const std::vector<int>& troubles) {
  std::vector<Candidate> order;
  for (const int trouble : troubles) {
    order.push_back({.place = 7 + order.size(), .trouble = trouble});
  }
  return TiedRequest(order, /*charged=*/false);
}

TEST(TiedRequestTest, TheNextIsAskedWhenTheFormerSaysThatItWaits) {
  TiedRequest tied = With({0, 0, 0});
  EXPECT_TRUE(tied.MayAskMore());
  EXPECT_EQ(tied.Next(), 7u);
  EXPECT_FALSE(tied.Next()) << "it has not answered";
  tied.Heard(7, Answer::kWaits);
  EXPECT_EQ(tied.Next(), 8u);
  tied.Heard(8, Answer::kRefused);
  EXPECT_EQ(tied.Next(), 9u);
  EXPECT_FALSE(tied.MayAskMore());
  tied.Heard(9, Answer::kWaits);
  EXPECT_FALSE(tied.Next());
  EXPECT_FALSE(tied.over());
  EXPECT_THAT(tied.Others(9), ElementsAre(7u)) << "the first lets it go";
  tied.Heard(7, Answer::kRefused);
  EXPECT_FALSE(tied.over());
  tied.Heard(9, Answer::kRefused);
  EXPECT_TRUE(tied.over());
  EXPECT_THAT(tied.Others(9), IsEmpty());
}

TEST(TiedRequestTest, GpuWithTroubleIsAskedOnceAllOthersHaveRefused) {
  TiedRequest tied = With({0, ModelOnGpu::kNoDaemon});
  EXPECT_EQ(tied.Next(), 7u);
  EXPECT_FALSE(tied.MayAskMore());
  tied.Heard(7, Answer::kWaits);
  EXPECT_FALSE(tied.Next());
  tied.Heard(7, Answer::kRefused);
  EXPECT_FALSE(tied.over());
  EXPECT_EQ(tied.Next(), 8u);
}

TEST(TiedRequestTest, AReasonIsTheAnswerWhereEnginesDoNotAnswer) {
  TiedRequest refused = With({0, ModelOnGpu::kNoAnswer});
  refused.Next();
  refused.Heard(7, Answer::kRefused);
  EXPECT_TRUE(refused.over());
  TiedRequest unknown = With({0, ModelOnGpu::kNoAnswer});
  unknown.Next();
  unknown.Heard(7, Answer::kNothing);
  EXPECT_EQ(unknown.Next(), 8u) << "it may just have begun to serve";
}

TEST(TiedRequestTest, OneGpuBringsTheModelBack) {
  TiedRequest tied = With({ModelOnGpu::kAway, ModelOnGpu::kAway});
  EXPECT_EQ(tied.Next(), 7u);
  EXPECT_FALSE(tied.MayAskMore());
  tied.Heard(7, Answer::kWaits);
  EXPECT_FALSE(tied.Next()) << "the other would evict engines for it, too";
  tied.Heard(7, Answer::kRefused);
  EXPECT_TRUE(tied.over());

  TiedRequest gone = With({ModelOnGpu::kAway, ModelOnGpu::kAway});
  gone.Next();
  gone.Heard(7, Answer::kNothing);
  EXPECT_EQ(gone.Next(), 8u) << "the first has no engine";
}

TEST(TiedRequestTest, ModelComesBackToAnIdleGpuIfThoseThatHaveItRefuse) {
  TiedRequest tied = With({0, 0, ModelOnGpu::kAway});
  tied.Next();
  tied.Heard(7, Answer::kWaits);
  EXPECT_EQ(tied.Next(), 8u);
  EXPECT_FALSE(tied.MayAskMore());
  tied.Heard(8, Answer::kRefused);
  EXPECT_FALSE(tied.Next()) << "it waits at the first";
  tied.Heard(7, Answer::kRefused);
  EXPECT_EQ(tied.Next(), 9u);

  TiedRequest busy(
      {{.place = 7}, {.place = 8, .trouble = ModelOnGpu::kAway, .load = 100}},
      /*charged=*/false);
  busy.Next();
  busy.Heard(7, Answer::kRefused);
  EXPECT_TRUE(busy.over()) << "models that are there would have to leave";
}

TEST(TiedRequestTest, AGpuThatLostItsDaemonIsTheLastToBeAsked) {
  TiedRequest tied = With({0, 0});
  tied.Next();
  tied.Heard(7, Answer::kWaits);
  tied.Next();
  tied.Lost(7);
  EXPECT_THAT(tied.Others(8), IsEmpty());
  tied.Heard(8, Answer::kWaits);
  EXPECT_FALSE(tied.Next());
  tied.Heard(8, Answer::kRefused);
  EXPECT_EQ(tied.Next(), 7u);
}

}  // namespace
}  // namespace fineserve::proxy

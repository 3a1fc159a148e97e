#include "bench/compare/probes.h"

#include <gtest/gtest.h>

#include "bench/compare/compared_fleet.h"

namespace fineserve::bench {
namespace {

using Fleet = ComparedFleet;

TEST(ProbesTest, EndBeforeTheTraceBegins) {
  workload::Trace trace;
  trace.models = Fleet::Models();
  trace.arrivals = {{0.5, 2, {7, 9}}};
  const workload::Trace all = AfterProbes(trace);
  ASSERT_GT(all.arrivals.size(), 1u);
  const workload::Arrival& probe = all.arrivals[all.arrivals.size() - 2];
  EXPECT_LT(probe.at_s + Fleet::AnswerSeconds(probe.lengths) + 1,
            kProbeSeconds);
  EXPECT_EQ(all.arrivals.back().at_s, kProbeSeconds + 0.5);
  EXPECT_EQ(all.arrivals.back().model, 2u);
  EXPECT_EQ(all.arrivals.back().lengths.output, 9u);
}

TEST(ProbesTest, PathIsTheMedianBesideTheStepOfProbesAlone) {
  workload::Trace trace;
  trace.models = Fleet::Models();
  trace.arrivals = {{0, 0, {100, 1}}};
  std::vector<workload::Outcome> outcomes;
  for (const workload::Arrival& a : AfterProbes(trace).arrivals) {
    workload::Outcome o;
    o.begin_s = a.at_s;
    const bool slow = outcomes.size() % 10 == 0;
    o.end =
        outcomes.size() == 1 ? workload::End::kFailed : workload::End::kDone;
    o.first_token_s =
        o.begin_s + Fleet::PrefillSeconds(100) + (slow ? 0.5 : 0.0033);
    outcomes.push_back(o);
  }
  outcomes.back().first_token_s += 100;
  const auto path = PathOf(outcomes);
  ASSERT_TRUE(path);
  EXPECT_NEAR(static_cast<double>(path->ask_us), 1100, 1);
  EXPECT_EQ(path->send_us, path->ask_us);
  EXPECT_EQ(path->answer_us, path->ask_us);
  EXPECT_FALSE(PathOf({}));
}

}  // namespace
}  // namespace fineserve::bench

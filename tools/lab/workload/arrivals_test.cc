#include "tools/lab/workload/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace fineserve::workload {
namespace {

const std::vector<Lengths> kLengths = {{10, 1}, {20, 2}, {30, 3}};

// Returns a trace of two quiet seconds around one second with a burst.
Trace Bursty() {
  Trace trace;
  trace.models = {"a", "b"};
  for (int i = 0; i < 10; ++i) trace.arrivals.push_back({i * 0.1, 0, {1, 1}});
  for (int i = 0; i < 400; ++i) {
    trace.arrivals.push_back(
        {1 + i * 0.0025, 1, {static_cast<uint32_t>(1000 + i), 5}});
  }
  for (int i = 0; i < 10; ++i) {
    trace.arrivals.push_back({2 + i * 0.1, 0, {1, 1}});
  }
  return trace;
}

std::map<int, size_t> PerSecond(const Trace& trace) {
  std::map<int, size_t> count;
  for (const Arrival& a : trace.arrivals) ++count[static_cast<int>(a.at_s)];
  return count;
}

bool InOrder(const Trace& trace) {
  for (size_t i = 1; i < trace.arrivals.size(); ++i) {
    if (trace.arrivals[i].at_s < trace.arrivals[i - 1].at_s) return false;
  }
  return true;
}

TEST(PoissonTest, RatesAndGapsAreThoseOfAPoissonProcess) {
  const Trace t = Poisson({{"a", 50}, {"b", 150}}, 100, kLengths, 1);
  EXPECT_TRUE(InOrder(t));
  std::map<uint32_t, std::vector<double>> at;
  for (const Arrival& a : t.arrivals) at[a.model].push_back(a.at_s);
  // The tolerance is five standard deviations of the count.
  EXPECT_NEAR(at[0].size(), 5000, 5 * std::sqrt(5000));
  EXPECT_NEAR(at[1].size(), 15'000, 5 * std::sqrt(15'000));
  // Gaps are exponential: their mean equals their standard deviation.
  double sum = 0, squares = 0;
  for (size_t i = 1; i < at[1].size(); ++i) {
    const double gap = at[1][i] - at[1][i - 1];
    sum += gap;
    squares += gap * gap;
  }
  const double n = static_cast<double>(at[1].size() - 1);
  const double deviation = std::sqrt(squares / n - sum / n * (sum / n));
  EXPECT_NEAR(deviation / (sum / n), 1, 0.05);
}

TEST(PoissonTest, SeedDecides) {
  const Trace a = Poisson({{"a", 50}}, 10, kLengths, 1);
  const Trace b = Poisson({{"a", 50}}, 10, kLengths, 1);
  const Trace c = Poisson({{"a", 50}}, 10, kLengths, 2);
  ASSERT_EQ(a.arrivals.size(), b.arrivals.size());
  EXPECT_EQ(a.arrivals[7].at_s, b.arrivals[7].at_s);
  EXPECT_NE(a.arrivals[7].at_s, c.arrivals[7].at_s);
}

TEST(PoissonTest, StreamWithoutRateSendsNothing) {
  EXPECT_TRUE(Poisson({{"a", 0}}, 10, kLengths, 1).arrivals.empty());
}

TEST(ScaleTest, PatternInTimeIsKept) {
  const auto before = PerSecond(Bursty());
  for (const double factor : {0.5, 1.0, 2.5, 8.0}) {
    const Trace scaled = Scale(Bursty(), factor, 3);
    EXPECT_TRUE(InOrder(scaled));
    const auto after = PerSecond(scaled);
    EXPECT_NEAR(static_cast<double>(after.at(1)),
                factor * static_cast<double>(before.at(1)), 60)
        << factor;
    EXPECT_LE(after.at(0), 10 * factor + 5);
    EXPECT_LE(scaled.seconds(), Bursty().seconds());
  }
}

TEST(ScaleTest, OnceIsTheTraceItself) {
  const Trace t = Bursty();
  const Trace scaled = Scale(t, 1, 3);
  ASSERT_EQ(scaled.arrivals.size(), t.arrivals.size());
  for (size_t i = 0; i < t.arrivals.size(); ++i) {
    EXPECT_EQ(scaled.arrivals[i].at_s, t.arrivals[i].at_s);
    EXPECT_EQ(scaled.arrivals[i].lengths.input, t.arrivals[i].lengths.input);
  }
}

TEST(ScaleTest, CopiesKeepTheirModelsLengths) {
  for (const Arrival& a : Scale(Bursty(), 4, 3).arrivals) {
    EXPECT_EQ(a.lengths.input >= 1000, a.model == 1);
  }
}

TEST(TraceChangesTest, FirstSecondsAndFaster) {
  EXPECT_EQ(FirstSeconds(Bursty(), 1).arrivals.size(), 10u);
  const Trace later = Window(Bursty(), 1, Bursty().seconds());
  EXPECT_EQ(later.arrivals.size(), Bursty().arrivals.size() - 10);
  EXPECT_GE(later.arrivals[0].at_s, 0);
  EXPECT_NEAR(Faster(Bursty(), 2).seconds(), Bursty().seconds() / 2, 1e-9);
}

TEST(TraceChangesTest, BesideKeepsBothLoadsInOrderOfTime) {
  Trace other = Faster(Bursty(), 3);
  other.models = {"c", "d"};
  const Trace both = Beside(Bursty(), other);
  EXPECT_EQ(both.models, (std::vector<std::string>{"a", "b", "c", "d"}));
  ASSERT_EQ(both.arrivals.size(), 2 * Bursty().arrivals.size());
  std::map<uint32_t, int> of;
  for (size_t i = 0; i < both.arrivals.size(); ++i) {
    ++of[both.arrivals[i].model];
    if (i == 0) continue;
    EXPECT_GE(both.arrivals[i].at_s, both.arrivals[i - 1].at_s);
  }
  EXPECT_EQ(of[0], of[2]);
  EXPECT_EQ(of[1], of[3]);
}

TEST(TraceChangesTest, RenameMergesAndLeavesOut) {
  const auto only = Rename(Bursty(), {{"b", "mine"}});
  ASSERT_TRUE(only.ok());
  EXPECT_EQ(only->arrivals.size(), 400u);
  EXPECT_EQ(only->models, (std::vector<std::string>{"mine"}));
  const auto both = Rename(Bursty(), {{"b", "mine"}, {"a", "mine"}});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->arrivals.size(), 420u);
  EXPECT_EQ(both->models.size(), 1u);
  EXPECT_FALSE(Rename(Bursty(), {{"c", "mine"}}).ok());
}

}  // namespace
}  // namespace fineserve::workload

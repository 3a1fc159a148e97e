#include "daemon/contract/metrics/metric_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fineserve::metrics {
namespace {

TEST(MetricListTest, NamesAreOursAndOccurOnce) {
  std::set<std::string> names;
  for (const Metric& metric : AllMetrics()) {
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
    EXPECT_THAT(metric.name, testing::MatchesRegex("fineserve_[a-z_]+"));
  }
}

// Checks Prometheus's conventions, as promtool also does where it is installed.
TEST(MetricListTest, NamesSayTypeAndUnit) {
  for (const Metric& metric : AllMetrics()) {
    const std::string name = metric.name;
    EXPECT_EQ(absl::EndsWith(name, "_total"),
              metric.type == MetricType::kCounter)
        << name;
    const bool is_time = absl::StartsWith(metric.unit, "seconds");
    EXPECT_EQ(absl::StrContains(name, "_seconds"), is_time) << name;
    const bool is_bytes = std::string(metric.unit) == "bytes";
    EXPECT_EQ(
        absl::EndsWith(name, "_bytes") || absl::EndsWith(name, "_bytes_total"),
        is_bytes)
        << name;
  }
}

TEST(MetricListTest, EachSaysWhatItMeans) {
  for (const Metric& metric : AllMetrics()) {
    EXPECT_GT(std::string(metric.meaning).size(), 10u) << metric.name;
    EXPECT_FALSE(absl::EndsWith(metric.meaning, ".")) << metric.name;
    EXPECT_NE(std::string(metric.unit), "") << metric.name;
  }
}

TEST(LabelNamesTest, AreSplitAtCommas) {
  EXPECT_THAT(LabelNames(Describe(MetricId::kEngineSlabs)),
              testing::ElementsAre("engine", "model", "state"));
  EXPECT_THAT(LabelNames(Describe(MetricId::kSlabBytes)), testing::IsEmpty());
}

}  // namespace
}  // namespace fineserve::metrics

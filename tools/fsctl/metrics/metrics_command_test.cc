#include "tools/fsctl/metrics/metrics_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/contract/metrics/metric_list.h"

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsTextTest, NamesLabelsTypeUnitAndMeaning) {
  const std::string text = MetricsText({}, /*color=*/false);
  EXPECT_THAT(text, HasSubstr("fineserve_pool_bytes{state}  gauge, bytes\n"
                              "      Bytes of the pool by the state"));
  EXPECT_THAT(text, HasSubstr("fineserve-proxy: /metrics of its admin port\n"));
}

TEST(MetricsTextTest, APartOfNameOrMeaningChooses) {
  const std::string text = MetricsText({"QUARANTINE"}, /*color=*/false);
  EXPECT_THAT(text, HasSubstr("fineserve_quarantine_age_seconds"));
  EXPECT_THAT(text, Not(HasSubstr("fineserve_pool_bytes")));
  EXPECT_THAT(text, Not(HasSubstr("fineserve-proxy:")));
}

TEST(MetricsJsonTest, HoldsEveryMetric) {
  const auto json = nlohmann::json::parse(MetricsJson({}));
  EXPECT_EQ(json["metrics"].size(), metrics::kMetrics);
  EXPECT_EQ(json["metrics"][0]["name"], "fineserve_build_info");
  EXPECT_EQ(json["metrics"][0]["program"], "fineserved");
  EXPECT_EQ(json["metrics"][0]["labels"][2], "gpu");
}

TEST(RunMetricsTest, NothingThatMatchesIsABadAnswer) {
  EXPECT_EQ(RunMetrics({}, {"no such thing"}), 1);
}

}  // namespace
}  // namespace fineserve::fsctl

#include "tools/lab/engines/tinyserve/engine/metrics.h"

#include <gmock/gmock.h>

namespace tinyserve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsTest, BoundsAreInclusiveAndBucketsAddUp) {
  Histogram h({1, 2.5, 10});
  for (const double value : {1.0, 1.1, 2.5, 9.0, 11.0}) h.Observe(value);
  EXPECT_EQ(h.CountUpTo(0), 1u);
  EXPECT_EQ(h.CountUpTo(1), 3u);
  EXPECT_EQ(h.CountUpTo(2), 4u);
  EXPECT_EQ(h.count(), 5u);
  EXPECT_DOUBLE_EQ(h.sum(), 24.6);
}

TEST(MetricsTest, TextHasVllmsNamesAndLabels) {
  Metrics m;
  m.running = 3;
  m.kv_usage = 0.25;
  m.preemptions = 7;
  m.prompt_tokens = 40'000;
  m.finished_abort = 2;
  m.first_token.Observe(0.02);
  const std::string text = PrometheusText(m, "llama");
  const std::string labels = "{engine=\"0\",model_name=\"llama\"";
  for (const std::string& line : {
           "# TYPE vllm:num_requests_running gauge\n"
           "vllm:num_requests_running" +
               labels + "} 3.0\n",
           "vllm:num_requests_waiting" + labels + "} 0.0\n",
           "vllm:kv_cache_usage_perc" + labels + "} 0.25\n",
           "vllm:prompt_tokens_total" + labels + "} 40000.0\n",
           "# TYPE vllm:num_preemptions_total counter\n"
           "vllm:num_preemptions_total" +
               labels + "} 7.0\n",
           "vllm:request_success_total" + labels +
               ",finished_reason=\"abort\"} 2.0\n",
           "vllm:time_to_first_token_seconds_bucket" + labels +
               ",le=\"0.01\"} 0.0\n",
           "vllm:time_to_first_token_seconds_bucket" + labels +
               ",le=\"0.02\"} 1.0\n",
           "vllm:time_to_first_token_seconds_bucket" + labels +
               ",le=\"+Inf\"} 1.0\n",
           "vllm:time_to_first_token_seconds_count" + labels + "} 1.0\n",
           "vllm:time_to_first_token_seconds_sum" + labels + "} 0.02\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(MetricsTest, ModelsNameIsEscaped) {
  const std::string text = PrometheusText(Metrics(), "a\"b\\c\nd");
  EXPECT_THAT(text, HasSubstr("model_name=\"a\\\"b\\\\c\\nd\""));
  EXPECT_THAT(text, Not(HasSubstr("c\nd")));
}

}  // namespace
}  // namespace tinyserve

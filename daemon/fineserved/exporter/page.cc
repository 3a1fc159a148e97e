#include "daemon/fineserved/exporter/page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

namespace fineserve::exporter {
namespace {

prometheus::MetricType TypeOf(const metrics::Metric& metric) {
  switch (metric.type) {
    case metrics::MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case metrics::MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case metrics::MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

}  // namespace

Page::Page() : families_(metrics::kMetrics) {}

Page::~Page() = default;

prometheus::ClientMetric* Page::NewSample(metrics::MetricId id,
                                          LabelValues labels) {
  prometheus::MetricFamily& family = families_[static_cast<size_t>(id)];
  const metrics::Metric& metric = metrics::Describe(id);
  if (family.metric.empty()) {
    family.name = metric.name;
    family.help = metric.meaning;
    family.type = TypeOf(metric);
  }
  const std::vector<absl::string_view> names = metrics::LabelNames(metric);
  if (names.size() != labels.size()) abort();  // our own mistake
  prometheus::ClientMetric& sample = family.metric.emplace_back();
  auto name = names.begin();
  for (const absl::string_view value : labels) {
    sample.label.push_back({std::string(*name++), std::string(value)});
  }
  return &sample;
}

void Page::Add(metrics::MetricId id, LabelValues labels, double value) {
  prometheus::ClientMetric* const sample = NewSample(id, labels);
  if (metrics::Describe(id).type == metrics::MetricType::kCounter) {
    sample->counter.value = value;
  } else {
    sample->gauge.value = value;
  }
}

void Page::AddTimes(metrics::MetricId id, LabelValues labels,
                    const metrics::DurationCounts& times) {
  prometheus::ClientMetric::Histogram& histogram =
      NewSample(id, labels)->histogram;
  uint64_t so_far = 0;
  for (size_t i = 0; i < metrics::kDurationBuckets; ++i) {
    so_far += times.buckets[i];
    const double bound = i < std::size(metrics::kDurationBounds)
                             ? metrics::kDurationBounds[i]
                             : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({so_far, bound});
  }
  histogram.sample_count = so_far;
  histogram.sample_sum = times.sum_s;
}

std::string Page::Text() const {
  std::vector<prometheus::MetricFamily> shown;
  std::copy_if(families_.begin(), families_.end(), std::back_inserter(shown),
               [](const auto& family) { return !family.metric.empty(); });
  return prometheus::TextSerializer().Serialize(shown);
}

}  // namespace fineserve::exporter

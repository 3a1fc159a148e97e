#ifndef DAEMON_FINESERVED_EXPORTER_PAGE_H_
#define DAEMON_FINESERVED_EXPORTER_PAGE_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/contract/metrics/metric_list.h"
#include "daemon/contract/metrics/snapshot.h"

namespace prometheus {
struct ClientMetric;
struct MetricFamily;
}  // namespace prometheus

namespace fineserve::exporter {

// A page of metrics in Prometheus's text format. Names, help and labels come
// from the list of metrics, so only listed metrics can be written.
class Page {
 public:
  using LabelValues = std::initializer_list<absl::string_view>;

  Page();
  ~Page();

  // Adds a sample. It has as many label values as the list has labels, and no
  // two samples of a metric have the same values.
  void Add(metrics::MetricId id, LabelValues labels, double value);
  void AddTimes(metrics::MetricId id, LabelValues labels,
                const metrics::DurationCounts& times);

  std::string Text() const;

 private:
  prometheus::ClientMetric* NewSample(metrics::MetricId id, LabelValues labels);

  std::vector<prometheus::MetricFamily> families_;  // by MetricId
};

}  // namespace fineserve::exporter

#endif  // DAEMON_FINESERVED_EXPORTER_PAGE_H_

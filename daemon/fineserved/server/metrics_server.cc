#include "daemon/fineserved/server/metrics_server.h"

#include <utility>

#include "daemon/base/log/log.h"

namespace fineserve::server {

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Create(
    const config::ListenAddress& address, Measure measure,
    exporter::Exporter::CountFormer count_former, const Clock* clock,
    EventLoop* loop) {
  absl::StatusOr<std::unique_ptr<exporter::Exporter>> exporter =
      exporter::Exporter::Start(address.host, address.port,
                                std::move(count_former));
  if (!exporter.ok()) return exporter.status();
  log::Info("metrics are at http://{}/metrics", (*exporter)->address());
  return std::unique_ptr<MetricsServer>(new MetricsServer(
      address, std::move(measure), *std::move(exporter), clock, loop));
}

MetricsServer::MetricsServer(const config::ListenAddress& address,
                             Measure measure,
                             std::unique_ptr<exporter::Exporter> exporter,
                             const Clock* clock, EventLoop* loop)
    : asked_(address),
      measure_(std::move(measure)),
      clock_(clock),
      exporter_(std::move(exporter)),
      wanted_(loop->OnReadable(exporter_->descriptor(), [this] { Give(); })) {}

void MetricsServer::Give() {
  const uint64_t began_ns = clock_->NowNs();
  metrics::Snapshot snapshot = measure_();
  exporter_->Give(std::move(snapshot), clock_->NowNs() - began_ns);
}

}  // namespace fineserve::server

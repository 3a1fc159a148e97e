#ifndef DAEMON_FINESERVED_SERVER_METRICS_SERVER_H_
#define DAEMON_FINESERVED_SERVER_METRICS_SERVER_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fineserved/exporter/exporter.h"
#include "daemon/fineserved/server/event_loop.h"
#include "daemon/fleet/config/address.h"

namespace fineserve::server {

// Connects the exporter to the loop: gives it a snapshot when a scrape waits
// for one. Confined to the loop's thread.
class MetricsServer {
 public:
  using Measure = std::function<metrics::Snapshot()>;

  // Listens at `address`. The pointers must outlive it.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Create(
      const config::ListenAddress& address, Measure measure,
      exporter::Exporter::CountFormer count_former, const Clock* clock,
      EventLoop* loop);

  // Returns the address as configured: port 0 stays 0.
  const config::ListenAddress& asked() const { return asked_; }

 private:
  MetricsServer(const config::ListenAddress& address, Measure measure,
                std::unique_ptr<exporter::Exporter> exporter,
                const Clock* clock, EventLoop* loop);
  void Give();

  const config::ListenAddress asked_;
  const Measure measure_;
  const Clock* const clock_;
  const std::unique_ptr<exporter::Exporter> exporter_;
  const std::unique_ptr<EventSource> wanted_;
};

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_SERVER_METRICS_SERVER_H_

#ifndef DAEMON_FINESERVED_EXPORTER_EXPORTER_H_
#define DAEMON_FINESERVED_EXPORTER_EXPORTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/contract/metrics/snapshot.h"

namespace fineserve::exporter {

struct Limits {
  size_t connections = 16;
  size_t header_bytes = 8 << 10;
  uint32_t idle_s = 75;         // between two requests
  uint32_t receive_s = 10;      // for a header
  uint32_t send_s = 10;         // for the answer to be taken
  uint32_t linger_s = 2;        // for what is sent after a refusal
  uint32_t snapshot_ms = 5000;  // for the main thread to give a snapshot
};

// Serves /metrics over HTTP on a separate thread. Even many slow scrapers cost
// the daemon's main thread only a copy of its figures: that thread gives a
// snapshot when descriptor() is readable. Pages are made one after another, so
// there is at most one snapshot per answer. Only the main thread may call Give
// and destroy this object.
class Exporter {
 public:
  // Counts the processes that hold a former daemon's pool. Runs on the
  // exporter's thread, at most once in ten seconds.
  using CountFormer = std::function<uint32_t()>;

  // Listens and starts to serve. If `port` is 0, the kernel chooses a port.
  // Unavailable if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Exporter>> Start(
      const std::string& host, uint16_t port, CountFormer count_former,
      const Limits& limits = {});
  virtual ~Exporter() = default;

  // Address on which it listens: "127.0.0.1:9400".
  virtual std::string address() const = 0;
  // Readable while a scrape waits for Give.
  virtual int descriptor() const = 0;
  // `took_ns` is the main thread's time for the snapshot.
  virtual void Give(metrics::Snapshot snapshot, uint64_t took_ns) = 0;
};

}  // namespace fineserve::exporter

#endif  // DAEMON_FINESERVED_EXPORTER_EXPORTER_H_

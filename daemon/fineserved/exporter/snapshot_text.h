#ifndef DAEMON_FINESERVED_EXPORTER_SNAPSHOT_TEXT_H_
#define DAEMON_FINESERVED_EXPORTER_SNAPSHOT_TEXT_H_

#include <cstdint>
#include <string>

#include "daemon/contract/metrics/snapshot.h"

namespace fineserve::exporter {

// The exporter's own figures, in addition to the snapshot.
struct ScrapeFigures {
  uint64_t scrapes = 0;  // that were answered
  double loop_s = 0;     // that they took of the main thread
  uint32_t former_pool_processes = 0;
};

// Returns the page that Prometheus reads.
std::string SnapshotText(const metrics::Snapshot& snapshot,
                         const ScrapeFigures& scrapes);

}  // namespace fineserve::exporter

#endif  // DAEMON_FINESERVED_EXPORTER_SNAPSHOT_TEXT_H_

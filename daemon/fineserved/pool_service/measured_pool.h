#ifndef DAEMON_FINESERVED_POOL_SERVICE_MEASURED_POOL_H_
#define DAEMON_FINESERVED_POOL_SERVICE_MEASURED_POOL_H_

#include <cstdint>

#include "daemon/contract/metrics/snapshot.h"
#include "daemon/pool/table_writer.h"

namespace fineserve::server {

class MoveBook;
class PoolService;

// Returns a pool's figures for a scrape. It does not read individual slabs, so
// its cost grows only with the number of engines.
metrics::PoolFigures MeasurePool(const PoolService& pool, const MoveBook& moves,
                                 uint64_t now_ns);

metrics::TableFigures MeasureTable(const slab::TableWriter& table);

}  // namespace fineserve::server

#endif  // DAEMON_FINESERVED_POOL_SERVICE_MEASURED_POOL_H_

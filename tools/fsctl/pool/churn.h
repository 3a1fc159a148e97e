#ifndef TOOLS_FSCTL_POOL_CHURN_H_
#define TOOLS_FSCTL_POOL_CHURN_H_

#include <cstdint>
#include <map>
#include <optional>

#include "tools/fsctl/pool/observation.h"

namespace fineserve::fsctl {

// What moved, in one second or, of Totals, so far. Without a value: not known.
// Plain values.

struct EngineChurn {
  // Slabs. Between two observations those that changed hands; what came and
  // went again in between does not show.
  std::optional<double> leased;
  std::optional<double> returned;
  std::optional<double> allocated_blocks;
};

// By the daemon's counters: exact.
struct PoolChurn {
  double leases_granted = 0;
  double leases_denied = 0;
  double asked_back = 0;
  double returned = 0;
  double bytes_zeroed = 0;
};

struct Churn {
  bool per_second = true;
  std::optional<PoolChurn> pool;
  std::map<uint32_t, EngineChurn> engines;  // each that the table lists
};

// Nothing is known if the two are of different daemons or of one moment.
Churn ChurnBetween(const Observation& before, const Observation& now);

// Since the daemon started; of engines, since their views were activated.
Churn TotalChurn(const Observation& now);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_POOL_CHURN_H_

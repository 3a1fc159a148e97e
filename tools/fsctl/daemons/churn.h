#ifndef TOOLS_FSCTL_DAEMONS_CHURN_H_
#define TOOLS_FSCTL_DAEMONS_CHURN_H_

#include <cstdint>
#include <map>
#include <optional>

#include "tools/fsctl/daemons/observation.h"

namespace fineserve::fsctl {

// Changes per second or, in TotalChurn, so far. An absent value is unknown.
// Plain values.

struct EngineChurn {
  // Slabs. Between two observations these are the slabs that changed hands; a
  // slab that came and went in between is not counted.
  std::optional<double> leased;
  std::optional<double> returned;
  std::optional<double> allocated_blocks;
};

// Exact, since they come from the daemon's counters.
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
  std::map<uint32_t, EngineChurn> engines;  // all that the table lists
};

// Everything is unknown if the two are from different daemons or the same
// moment.
Churn ChurnBetween(const Observation& before, const Observation& now);

// Returns the changes since the daemon started; for engines, since their views
// were activated.
Churn TotalChurn(const Observation& now);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DAEMONS_CHURN_H_

#ifndef DAEMON_SCHEDULING_GLOBAL_PRICES_H_
#define DAEMON_SCHEDULING_GLOBAL_PRICES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/scheduling/global/model/snapshot.h"
#include "daemon/scheduling/global/plan.h"

namespace fineserve::plan {

// Returns the snapshot with everything where the plan has it.
Snapshot After(const Snapshot& snapshot, const Plan& plan);

// Plans a changed cluster and returns the plan's worth. Of the replicas that
// have a place, only `movers` need to move.
using PlanAgain = absl::FunctionRef<Worth(
    const Snapshot& changed, const std::vector<std::string>& movers)>;

// Prices the loss of the `most` GPUs with the least goodput, and the addition
// of one GPU of each size, by planning again.
void SetPrices(const Snapshot& snapshot, size_t most, PlanAgain plan_again,
               Plan* plan);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_PRICES_H_

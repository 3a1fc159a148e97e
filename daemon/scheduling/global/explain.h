#ifndef DAEMON_SCHEDULING_GLOBAL_EXPLAIN_H_
#define DAEMON_SCHEDULING_GLOBAL_EXPLAIN_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/scheduling/global/plan.h"

namespace fineserve::plan {

// Explains the places of a model's replicas, in sentences, one per line: when
// each replica was placed, what the groups scored, which group won by how much,
// and why the others were not candidates.
absl::StatusOr<std::string> Explain(const Plan& plan, const std::string& model);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_EXPLAIN_H_

#ifndef DAEMON_PLAN_EXPLAIN_H_
#define DAEMON_PLAN_EXPLAIN_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/plan/plan.h"

namespace fineserve::plan {

// Why the replicas of a model lie where they lie, in sentences, one a line:
// when each came, what the groups scored, who won by how much, and why the
// others were no candidates. NotFound, naming those there are, for a model that
// is not planned.
absl::StatusOr<std::string> Explain(const Plan& plan, const std::string& model);

}  // namespace fineserve::plan

#endif  // DAEMON_PLAN_EXPLAIN_H_

#ifndef DAEMON_PLAN_MAKE_PLAN_H_
#define DAEMON_PLAN_MAKE_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/plan/model/problem.h"
#include "daemon/plan/model/snapshot.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/policy/policy.h"

namespace fineserve::plan {

struct Options {
  std::string policy = "fineserve-opt";
  ProblemOptions problem;
  PolicyOptions of_policy;
  bool reasons = true;
  // Branch and bound gives up after so many steps (none: never tries) and only
  // runs up to 8 models × 4 GPUs; beyond it the gap is that to a bound.
  uint64_t exact_steps = 2'000'000;
};

// Snapshot in, plan out: no clock, no chance; the order of the input means
// nothing. InvalidArgument, in one line with the fix, for a snapshot that
// cannot be planned (snapshot.h) or a policy that there is not. That something
// finds no place is no error: the plan says so in its troubles.
absl::StatusOr<Plan> MakePlan(const Snapshot& snapshot, const Options& options);

}  // namespace fineserve::plan

#endif  // DAEMON_PLAN_MAKE_PLAN_H_

#ifndef DAEMON_SCHEDULING_GLOBAL_MAKE_PLAN_H_
#define DAEMON_SCHEDULING_GLOBAL_MAKE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/scheduling/global/model/problem.h"
#include "daemon/scheduling/global/model/snapshot.h"
#include "daemon/scheduling/global/plan.h"
#include "daemon/scheduling/global/policy/policy.h"

namespace fineserve::plan {

struct Options {
  std::string policy = "fineserve-opt";
  ProblemOptions problem;
  PolicyOptions of_policy;
  bool reasons = true;
  // Reasons of this model alone; empty: of all, which fineserve-opt looks for
  // in time that grows with models × GPUs.
  std::string explain_only;
  // Branch and bound gives up after so many steps (none: never tries) and only
  // runs up to 8 models × 4 GPUs; beyond it the gap is that to a bound.
  uint64_t exact_steps = 2'000'000;
  // Number of GPUs whose loss is priced, those with the least goodput first. At
  // 0 nothing is priced, not even the addition of a GPU.
  size_t priced_gpus = 8;
};

// Snapshot in, plan out: no clock, no chance; the order of the input means
// nothing. InvalidArgument, in one line with the fix, for a snapshot that
// cannot be planned (snapshot.h) or a policy that there is not. A replica that
// finds no place is no error: the plan's troubles name it.
absl::StatusOr<Plan> MakePlan(const Snapshot& snapshot, const Options& options);

// The plan that leaves everything where `snapshot.current` has it, with its
// worth and target rates. No reasons, no prices, no branch and bound.
absl::StatusOr<Plan> DescribeCurrent(const Snapshot& snapshot,
                                     const Options& options);

// Plans again after a change, for fineserve-opt alone: everything stays where
// `snapshot.current` has it, but for the models of `changed`, those without a
// place and their neighbours, which move where that betters the plan. The time
// hardly grows with the rest. No reasons, no prices, no branch and bound.
absl::StatusOr<Plan> Replan(const Snapshot& snapshot,
                            const std::vector<std::string>& changed,
                            const Options& options);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MAKE_PLAN_H_

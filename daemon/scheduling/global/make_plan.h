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
  // Explains only this model; if empty, all models, which takes time that grows
  // with models × GPUs for fineserve-opt.
  std::string explain_only;
  // Branch and bound gives up after this many steps (0: never tries) and only
  // runs up to 8 models × 4 GPUs. Beyond that size, the gap is measured to a
  // bound.
  uint64_t exact_steps = 2'000'000;
  // Number of GPUs whose loss is priced, starting with those with the least
  // goodput. At 0 nothing is priced, not even the addition of a GPU.
  size_t priced_gpus = 8;
};

// Makes a plan from a snapshot. Uses no clock and no random numbers, and the
// order of the input means nothing. InvalidArgument, in one line with the fix,
// if the snapshot cannot be planned (snapshot.h) or there is no such policy. A
// replica that finds no place is not an error: the plan's troubles name it.
absl::StatusOr<Plan> MakePlan(const Snapshot& snapshot, const Options& options);

// Returns the plan that leaves everything where `snapshot.current` has it, with
// its worth and target rates, but without reasons, prices, or branch and bound.
absl::StatusOr<Plan> DescribeCurrent(const Snapshot& snapshot,
                                     const Options& options);

// Decides what rests beside `snapshot.current`. All of the current placement
// counts, whether or not it fits, because it runs. Sets the plan's replicas,
// `resting`, `not_resting` and `hosts`.
absl::StatusOr<Plan> RestBeside(const Snapshot& snapshot,
                                const Options& options);

// Plans again after a change, for fineserve-opt only. The models of `changed`,
// those without a place, and their neighbours move where that improves the
// plan. Everything else stays where `snapshot.current` has it, and adds hardly
// any time. Gives no reasons and no prices, and runs no branch and bound.
absl::StatusOr<Plan> Replan(const Snapshot& snapshot,
                            const std::vector<std::string>& changed,
                            const Options& options);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MAKE_PLAN_H_

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
  // Explains only this model; if empty, all of them, for which fineserve-opt
  // takes time that grows with models × GPUs.
  std::string explain_only;
  // Branch and bound gives up after this many steps (0: never tries) and only
  // runs up to 8 models × 4 GPUs. Beyond that the gap is measured to a bound.
  uint64_t exact_steps = 2'000'000;
  // Number of GPUs whose loss is priced, those with the least goodput first. At
  // 0 nothing is priced, not even the addition of a GPU.
  size_t priced_gpus = 8;
};

// Makes a plan from a snapshot. It uses no clock and no chance, and the order
// of the input means nothing. InvalidArgument, in one line with the fix, if the
// snapshot cannot be planned (snapshot.h) or there is no such policy. A replica
// that finds no place is no error: the plan's troubles name it.
absl::StatusOr<Plan> MakePlan(const Snapshot& snapshot, const Options& options);

// The plan that leaves everything where `snapshot.current` has it, with its
// worth and target rates. No reasons, no prices, no branch and bound.
absl::StatusOr<Plan> DescribeCurrent(const Snapshot& snapshot,
                                     const Options& options);

// Decides what rests beside `snapshot.current`. All of that counts, whether or
// not it fits: it runs. Sets the plan's replicas, `resting`, `not_resting` and
// `hosts`.
absl::StatusOr<Plan> RestBeside(const Snapshot& snapshot,
                                const Options& options);

// Plans again after a change, for fineserve-opt only. The models of `changed`,
// those without a place, and their neighbours move where that improves the
// plan; everything else stays where `snapshot.current` has it, and adds hardly
// any time. No reasons, no prices, no branch and bound.
absl::StatusOr<Plan> Replan(const Snapshot& snapshot,
                            const std::vector<std::string>& changed,
                            const Options& options);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MAKE_PLAN_H_

#ifndef BENCH_PAPER_COMPARED_SYSTEMS_BASELINES_H_
#define BENCH_PAPER_COMPARED_SYSTEMS_BASELINES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/scheduling/global/policy/policy.h"

// Placement policies that papers compare themselves with. No operator chooses
// them, so the planner does not know them.

namespace fineserve::bench {

// FineServe's Static* (its §7.1): FineServe's placement, and each model's part
// of a GPU fixed in proportion to F_M. (Its FCFS is the local scheduler's.)
class StaticPolicy : public plan::Policy {
 public:
  const plan::About& about() const override;
  plan::Assignment Place(const plan::Problem& problem,
                         plan::Journal* journal) const override;
};

// Prism's S-Partition (its §7.2): models share GPUs, each with a fixed part of
// the KV.
class PartitionPolicy : public plan::Policy {
 public:
  const plan::About& about() const override;
  plan::Assignment Place(const plan::Problem& problem,
                         plan::Journal* journal) const override;
};

// MuxServe (Duan et al. 2024, Algorithm 1, as Prism's §7.2 runs it): models by
// the computation that they ask for (rate · tokens · weights), the most first,
// each to the group where the estimated throughput grows most; KV is shared.
// The TP is given, so meshes are not enumerated; it is never revised.
class MuxServePolicy : public plan::Policy {
 public:
  const plan::About& about() const override;
  plan::Assignment Place(const plan::Problem& problem,
                         plan::Journal* journal) const override;
};

// QLM (Patke et al. 2024, as Prism's §7.2 runs it): models take turns on a GPU,
// whole, and queues go to the instance that will be free first, whatever is
// loaded there: the busiest first, to the GPU with the least work.
class QlmPolicy : public plan::Policy {
 public:
  const plan::About& about() const override;
  plan::Assignment Place(const plan::Problem& problem,
                         plan::Journal* journal) const override;
};

// A placement policy by its name: one of these, or of the planner's.
// InvalidArgument, naming all of them, for any other.
absl::StatusOr<std::unique_ptr<plan::Policy>> MakePlacement(
    const std::string& name);

// All names, the planner's last.
std::vector<std::string> PlacementNames();

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_COMPARED_SYSTEMS_BASELINES_H_

#ifndef BENCH_PAPER_COMPARED_SYSTEMS_BASELINES_H_
#define BENCH_PAPER_COMPARED_SYSTEMS_BASELINES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/scheduling/global/policy/policy.h"

// Placement policies with which papers compare themselves. No operator chooses
// them, so the planner does not have them.

namespace fineserve::bench {

// FineServe's Static* (§7.1 of its paper): FineServe's placement, with each
// model's part of a GPU fixed in proportion to F_M. (Its FCFS belongs to the
// local scheduler.)
class StaticPolicy : public plan::Policy {
 public:
  const plan::About& about() const override;
  plan::Assignment Place(const plan::Problem& problem,
                         plan::Journal* journal) const override;
};

// Prism's S-Partition (§7.2 of its paper): models share GPUs, each with a fixed
// part of the KV.
class PartitionPolicy : public plan::Policy {
 public:
  const plan::About& about() const override;
  plan::Assignment Place(const plan::Problem& problem,
                         plan::Journal* journal) const override;
};

// MuxServe (Duan et al. 2024, Algorithm 1, as Prism's §7.2 runs it): takes
// models in descending order of the computation that they need (rate · tokens ·
// weights), and puts each on the group where the estimated throughput grows
// most; KV is shared. The TP is given, so meshes are not enumerated; it is
// never revised.
class MuxServePolicy : public plan::Policy {
 public:
  const plan::About& about() const override;
  plan::Assignment Place(const plan::Problem& problem,
                         plan::Journal* journal) const override;
};

// QLM (Patke et al. 2024, as Prism's §7.2 runs it): whole models take turns on
// a GPU. Queues, the busiest first, go to the instance that will be free first,
// which is the GPU with the least work, whatever is loaded there.
class QlmPolicy : public plan::Policy {
 public:
  const plan::About& about() const override;
  plan::Assignment Place(const plan::Problem& problem,
                         plan::Journal* journal) const override;
};

// Returns a placement policy by its name: one of the above, or of the
// planner's. For any other name, InvalidArgument, which lists all of them.
absl::StatusOr<std::unique_ptr<plan::Policy>> MakePlacement(
    const std::string& name);

// All names, the planner's last.
std::vector<std::string> PlacementNames();

}  // namespace fineserve::bench

#endif  // BENCH_PAPER_COMPARED_SYSTEMS_BASELINES_H_

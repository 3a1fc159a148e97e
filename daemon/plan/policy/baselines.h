#ifndef DAEMON_PLAN_POLICY_BASELINES_H_
#define DAEMON_PLAN_POLICY_BASELINES_H_

#include "daemon/plan/policy/policy.h"

namespace fineserve::plan {

// FineServe's Static* (its §7.1): FineServe's placement, and each model's part
// of a GPU fixed in proportion to F_M. (Its FCFS is the local scheduler's.)
class StaticPolicy : public Policy {
 public:
  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;
};

// No sharing: a GPU, or a TP group, for each replica; the smallest that holds
// it, the largest F_M first.
class DedicatedPolicy : public Policy {
 public:
  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;
};

// Prism's S-Partition (its §7.2): models share GPUs, each with a fixed part of
// the KV.
class PartitionPolicy : public Policy {
 public:
  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;
};

// MuxServe (Duan et al. 2024, Algorithm 1, as Prism's §7.2 runs it): models by
// the computation that they ask for (rate · tokens · weights), the most first,
// each to the group where the estimated throughput grows most; KV is shared.
// The TP is given, so meshes are not enumerated; it is never revised.
class MuxServePolicy : public Policy {
 public:
  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;
};

// QLM (Patke et al. 2024, as Prism's §7.2 runs it): models take turns on a GPU,
// whole, and queues go to the instance that will be free first, whatever is
// loaded there: the busiest first, to the GPU with the least work.
class QlmPolicy : public Policy {
 public:
  const About& about() const override;
  Assignment Place(const Problem& problem, Journal* journal) const override;
};

}  // namespace fineserve::plan

#endif  // DAEMON_PLAN_POLICY_BASELINES_H_

#ifndef DAEMON_PLAN_MODEL_ASSIGNMENT_H_
#define DAEMON_PLAN_MODEL_ASSIGNMENT_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "daemon/plan/model/problem.h"

namespace fineserve::plan {

// What of a replica's memory a policy sets aside on each of its GPUs.
enum class Charge {
  kWeights,    // Prism's: weights alone
  kLeast,      // weights, activations, floor: what any engine needs to serve
  kFootprint,  // F_M
};
double Charged(const Replica& replica, Charge charge);

// Which replica lies where. Confined to a thread; the problem must outlive it.
// It counts, it does not check: who puts a replica checks Room and Sibling.
class Assignment {
 public:
  using Residents = absl::InlinedVector<uint32_t, 8>;

  explicit Assignment(const Problem& problem);

  void Put(uint32_t replica, const Group& group);
  void Remove(uint32_t replica);

  bool Hosted(uint32_t replica) const { return !groups_[replica].empty(); }
  const Group& GroupOf(uint32_t replica) const { return groups_[replica]; }
  // Replicas on a GPU, ascending.
  const Residents& On(uint32_t gpu) const { return residents_[gpu]; }
  // Bytes of a GPU that are not charged to its residents. Computed from them,
  // so that it does not depend on the order of what came and went.
  double Room(uint32_t gpu, Charge charge) const;
  // The same of its pool; infinite where none has been made.
  double PoolRoom(uint32_t gpu, Charge charge) const;
  // Bytes that lack for the replica to lie on this GPU too: of all its memory,
  // of its pool, or of what the pool leaves. 0 or less: it fits.
  double Missing(uint32_t gpu, uint32_t replica, Charge charge) const;
  // Whether another replica of the same model lies there, and may not.
  bool Sibling(uint32_t replica, uint32_t gpu) const;
  // Whether the replica may lie on this GPU: allowed, room, no sibling.
  bool Takes(uint32_t gpu, uint32_t replica, Charge charge) const;
  // Models with at least one replica that lies somewhere.
  uint32_t hosted_models() const { return hosted_models_; }
  uint32_t HostedReplicas(uint32_t model) const { return hosted_[model]; }
  // Tokens/s that are asked of a replica that lies somewhere. Those of its
  // model that do share the rate; but where the operator set their number, one
  // that lies nowhere takes its part with it, so that it has to be worth more
  // than that to leave it out.
  double DemandOf(uint32_t replica) const;
  // Mean number of its neighbours on its most crowded GPU that work, at `load`
  // times the demand: each is counted by the part of the time in which, alone,
  // it would run at least one sequence (1 − e^−b of b on average).
  double BusyNeighbours(uint32_t replica, double load) const;
  const Problem& problem() const { return *problem_; }

 private:
  const Problem* problem_;
  std::vector<Group> groups_;  // by replica
  std::vector<Residents> residents_;
  std::vector<uint32_t> hosted_;  // by model
  uint32_t hosted_models_ = 0;
};

}  // namespace fineserve::plan

#endif  // DAEMON_PLAN_MODEL_ASSIGNMENT_H_

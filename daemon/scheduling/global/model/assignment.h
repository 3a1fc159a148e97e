#ifndef DAEMON_SCHEDULING_GLOBAL_MODEL_ASSIGNMENT_H_
#define DAEMON_SCHEDULING_GLOBAL_MODEL_ASSIGNMENT_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "daemon/scheduling/global/model/problem.h"

namespace fineserve::plan {

// The part of a replica's memory that a policy sets aside on each of its GPUs.
enum class Charge {
  kWeights,  // Prism's: weights alone
  // Weights, activations, context, floor: the least that any engine needs to
  // serve.
  kLeast,
  kFootprint,  // F_M
};
double Charged(const Replica& replica, Charge charge);

// An assignment of replicas to groups of GPUs. Confined to a thread; the
// problem must outlive it. It counts but does not check: callers check Room and
// Sibling before they place a replica.
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
  // Returns the bytes of a GPU that are not charged to its residents. Computed
  // from the residents, so it does not depend on the order in which they came
  // and went.
  double Room(uint32_t gpu, Charge charge) const;
  // Returns the same for the GPU's pool; infinite if no pool has been made.
  double PoolRoom(uint32_t gpu, Charge charge) const;
  // Returns the bytes missing for the replica to fit on this GPU too: of all
  // its memory, of its pool, or of what the pool leaves.
  double Missing(uint32_t gpu, uint32_t replica, Charge charge) const;
  // Returns the same for the node's host memory, for the replica's processes;
  // below 0 if the host memory is not known.
  double HostMissing(uint32_t node, uint32_t replica) const;
  // Returns the host memory of the processes of all replicas on a node.
  double ProcessBytes(uint32_t node) const { return process_bytes_[node]; }
  // True if another replica of the same model is on this GPU and must not share
  // it.
  bool Sibling(uint32_t replica, uint32_t gpu) const;
  // True if the replica may be placed on this GPU: it is allowed there, fits,
  // and has no sibling on the GPU.
  bool Takes(uint32_t gpu, uint32_t replica, Charge charge) const;
  // The same of a whole group.
  bool Takes(const Group& group, uint32_t replica, Charge charge) const;
  // Returns the number of models with at least one placed replica.
  uint32_t hosted_models() const { return hosted_models_; }
  uint32_t HostedReplicas(uint32_t model) const { return hosted_[model]; }
  // Returns the tokens/s asked of a placed replica. The placed replicas of its
  // model share the rate. If the operator set their number, an unplaced replica
  // takes its share with it, so that leaving it out has to be worth more than
  // that share.
  double DemandOf(uint32_t replica) const;
  // Returns the mean number of working neighbours on the replica's most crowded
  // GPU, at `load` times the demand. Each neighbour counts by the part of the
  // time in which, alone, it would run at least one sequence (1 − e^−b for b on
  // average).
  double BusyNeighbours(uint32_t replica, double load) const;
  const Problem& problem() const { return *problem_; }

 private:
  const Problem* problem_;
  std::vector<Group> groups_;  // by replica
  std::vector<Residents> residents_;
  std::vector<uint32_t> hosted_;       // by model
  std::vector<double> process_bytes_;  // by node
  uint32_t hosted_models_ = 0;
};

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_MODEL_ASSIGNMENT_H_

#include "daemon/plan/model/assignment.h"

#include <algorithm>

namespace fineserve::plan {

double Charged(const Replica& replica, Charge charge) {
  switch (charge) {
    case Charge::kWeights:
      return replica.weight_bytes;
    case Charge::kLeast:
      return replica.Least();
    case Charge::kFootprint:
      return replica.Footprint();
  }
  return 0;
}

Assignment::Assignment(const Problem& problem)
    : problem_(&problem),
      groups_(problem.replicas.size()),
      residents_(problem.gpus.size()),
      hosted_(problem.models.size()) {}

void Assignment::Put(uint32_t replica, const Group& group) {
  groups_[replica] = group;
  for (const uint32_t gpu : group) {
    Residents& on = residents_[gpu];
    on.insert(std::lower_bound(on.begin(), on.end(), replica), replica);
  }
  if (hosted_[problem_->replicas[replica].model]++ == 0) ++hosted_models_;
}

void Assignment::Remove(uint32_t replica) {
  for (const uint32_t gpu : groups_[replica]) {
    Residents& on = residents_[gpu];
    on.erase(std::lower_bound(on.begin(), on.end(), replica));
  }
  groups_[replica].clear();
  if (--hosted_[problem_->replicas[replica].model] == 0) --hosted_models_;
}

double Assignment::Room(uint32_t gpu, Charge charge) const {
  double room = problem_->gpus[gpu].Capacity();
  for (const uint32_t r : residents_[gpu]) {
    room -= Charged(problem_->replicas[r], charge);
  }
  return room;
}

bool Assignment::Sibling(uint32_t replica, uint32_t gpu) const {
  const uint32_t model = problem_->replicas[replica].model;
  if (problem_->models[model].may_share) return false;
  for (const uint32_t r : residents_[gpu]) {
    if (r != replica && problem_->replicas[r].model == model) return true;
  }
  return false;
}

bool Assignment::Takes(uint32_t gpu, uint32_t replica, Charge charge) const {
  const Replica& r = problem_->replicas[replica];
  return problem_->MayUse(r, gpu) && Room(gpu, charge) >= Charged(r, charge) &&
         !Sibling(replica, gpu);
}

}  // namespace fineserve::plan

#include "daemon/scheduling/global/model/assignment.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fineserve::plan {

namespace {

double ChargedKv(const Replica& replica, Charge charge) {
  switch (charge) {
    case Charge::kWeights:
      return 0;
    case Charge::kLeast:
      return replica.floor_bytes;
    case Charge::kFootprint:
      return replica.base_kv_bytes;
  }
  return 0;
}

// Returns the bytes charged that do not come out of a pool.
double ChargedBesidePool(const Replica& replica, Charge charge) {
  return charge == Charge::kWeights ? replica.weight_bytes
                                    : replica.fixed_bytes;
}

}  // namespace

double Charged(const Replica& replica, Charge charge) {
  return ChargedBesidePool(replica, charge) + ChargedKv(replica, charge);
}

Assignment::Assignment(const Problem& problem)
    : problem_(&problem),
      groups_(problem.replicas.size()),
      residents_(problem.gpus.size()),
      hosted_(problem.models.size()),
      process_bytes_(problem.host_bytes.size()) {}

void Assignment::Put(uint32_t replica, const Group& group) {
  process_bytes_[problem_->node_of[group.front()]] +=
      problem_->replicas[replica].process_bytes;
  groups_[replica] = group;
  for (const uint32_t gpu : group) {
    Residents& on = residents_[gpu];
    on.insert(std::lower_bound(on.begin(), on.end(), replica), replica);
  }
  if (hosted_[problem_->replicas[replica].model]++ == 0) ++hosted_models_;
}

void Assignment::Remove(uint32_t replica) {
  process_bytes_[problem_->node_of[groups_[replica].front()]] -=
      problem_->replicas[replica].process_bytes;
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

double Assignment::PoolRoom(uint32_t gpu, Charge charge) const {
  double room = problem_->gpus[gpu].pool_bytes;
  if (room == 0) return std::numeric_limits<double>::infinity();
  for (const uint32_t r : residents_[gpu]) {
    room -= ChargedKv(problem_->replicas[r], charge);
  }
  return room;
}

double Assignment::Missing(uint32_t gpu, uint32_t replica,
                           Charge charge) const {
  const Replica& r = problem_->replicas[replica];
  const Gpu& g = problem_->gpus[gpu];
  if (g.pool_bytes == 0) return Charged(r, charge) - Room(gpu, charge);
  double beside = g.Capacity() - g.pool_bytes;
  for (const uint32_t other : residents_[gpu]) {
    beside -= ChargedBesidePool(problem_->replicas[other], charge);
  }
  return std::max(ChargedBesidePool(r, charge) - beside,
                  ChargedKv(r, charge) - PoolRoom(gpu, charge));
}

double Assignment::HostMissing(uint32_t node, uint32_t replica) const {
  const double host = problem_->host_bytes[node];
  if (host == 0) return -std::numeric_limits<double>::infinity();
  return problem_->replicas[replica].process_bytes -
         (host - process_bytes_[node]);
}

double Assignment::DemandOf(uint32_t replica) const {
  const Replica& r = problem_->replicas[replica];
  if (!problem_->ChoosesNumber(r.model)) return r.curve.demand;
  return r.curve.demand * problem_->sizings[r.model].replicas /
         hosted_[r.model];
}

double Assignment::BusyNeighbours(uint32_t replica, double load) const {
  double most = 0;
  for (const uint32_t gpu : groups_[replica]) {
    double busy = 0;
    for (const uint32_t r : residents_[gpu]) {
      if (r == replica) continue;
      const double batch =
          problem_->replicas[r].curve.BatchFor(load * DemandOf(r), 1);
      busy += 1 - std::exp(-batch);
    }
    most = std::max(most, busy);
  }
  return most;
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
  return problem_->MayUse(r, gpu) && Missing(gpu, replica, charge) <= 0 &&
         HostMissing(problem_->node_of[gpu], replica) <= 0 &&
         !Sibling(replica, gpu);
}

bool Assignment::Takes(const Group& group, uint32_t replica,
                       Charge charge) const {
  return problem_->MayUse(problem_->replicas[replica], group) &&
         std::all_of(group.begin(), group.end(),
                     [&](uint32_t g) { return Takes(g, replica, charge); });
}

}  // namespace fineserve::plan

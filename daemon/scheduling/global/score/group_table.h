#ifndef DAEMON_SCHEDULING_GLOBAL_SCORE_GROUP_TABLE_H_
#define DAEMON_SCHEDULING_GLOBAL_SCORE_GROUP_TABLE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "daemon/scheduling/global/model/assignment.h"
#include "daemon/scheduling/global/score/efficiency.h"

namespace fineserve::plan {

// State of a group of GPUs as a placement policy sees it, whichever replica is
// placed.
struct GroupState {
  Group gpus;
  double efficiency = 0;   // Σ μ of the residents, each once
  uint32_t residents = 0;  // each once
  double room = 0;         // bytes of its fullest GPU that are not charged
  double pool_room = 0;    // the same of pools that have been made; or infinite

  bool HasPool() const { return std::isfinite(pool_room); }
  // Returns K_rem: the bytes of KV that are left once F_M of the replica is
  // charged.
  double Contested(const Replica& comes) const {
    return std::min(room - comes.Footprint(), pool_room - comes.base_kv_bytes);
  }
};

// Keeps the groups of each node until the node changes: a placement changes one
// node, so a thousand nodes cost little more than one. Interchangeable GPUs are
// combined once (groups.h). Confined to a thread; `a` must outlive it.
class GroupTable {
 public:
  GroupTable(const Assignment& a, Charge charge, Efficiency efficiency);

  // Returns all groups of `tp` GPUs of a node, in the order of groups.h. Valid
  // until the node changes or is asked for another TP.
  const std::vector<GroupState>& Of(uint32_t node, uint32_t tp);

  // To be called when a model came to the node, or left it.
  void Changed(uint32_t node) { nodes_[node].clear(); }

 private:
  struct OfTp {
    uint32_t tp;
    std::vector<GroupState> groups;
  };

  GroupState StateOf(const Group& group) const;

  const Assignment& a_;
  Charge charge_;
  Efficiency efficiency_;
  std::vector<std::vector<OfTp>> nodes_;
};

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_SCORE_GROUP_TABLE_H_

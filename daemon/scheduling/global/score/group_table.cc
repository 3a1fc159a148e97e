#include "daemon/scheduling/global/score/group_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/scheduling/global/model/groups.h"

namespace fineserve::plan {

GroupTable::GroupTable(const Assignment& a, Charge charge,
                       Efficiency efficiency)
    : a_(a),
      charge_(charge),
      efficiency_(efficiency),
      nodes_(a.problem().node_begins.size() - 1) {}

const std::vector<GroupState>& GroupTable::Of(uint32_t node, uint32_t tp) {
  for (const OfTp& known : nodes_[node]) {
    if (known.tp == tp) return known.groups;
  }
  OfTp made{tp, {}};
  ForEachCombination(
      a_, node, tp, [](uint32_t) { return true; },
      [&](const Group& group) { made.groups.push_back(StateOf(group)); });
  nodes_[node].push_back(std::move(made));
  return nodes_[node].back().groups;
}

GroupState GroupTable::StateOf(const Group& group) const {
  GroupState state;
  state.gpus = group;
  state.room = state.pool_room = std::numeric_limits<double>::infinity();
  Assignment::Residents all;
  for (const uint32_t g : group) {
    state.room = std::min(state.room, a_.Room(g, charge_));
    state.pool_room = std::min(state.pool_room, a_.PoolRoom(g, charge_));
    all.insert(all.end(), a_.On(g).begin(), a_.On(g).end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (const uint32_t r : all) {
    state.efficiency += EfficiencyOf(a_.problem().replicas[r], efficiency_);
  }
  state.residents = static_cast<uint32_t>(all.size());
  return state;
}

}  // namespace fineserve::plan

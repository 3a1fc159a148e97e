#ifndef DAEMON_SCHEDULING_GLOBAL_POLICY_LOCAL_SEARCH_H_
#define DAEMON_SCHEDULING_GLOBAL_POLICY_LOCAL_SEARCH_H_

#include <cstdint>
#include <vector>

#include "daemon/scheduling/global/score/goodput.h"

namespace fineserve::plan {

struct SearchLimits {
  // Number of groups tried for a move, starting with those with the most room.
  // If a cluster has fewer GPUs, all of it is searched.
  size_t targets = 48;
  size_t swap_targets = 8;
  int passes = 8;
  // Total number of groups tried, per replica; if there are few replicas, all
  // groups are tried.
  uint64_t tries_of_replica = 30;
  size_t few_replicas = 32;
  // Limits on packing replicas again (repack_all.h): replicas taken out
  // together, partial assignments followed, and groups tried in total.
  // Heuristics, by `scripts/bench plan`.
  size_t most_repacked = 16;
  size_t repack_width = 8;
  uint64_t repack_tries = 20'000;
};

// Improves an assignment by steps that each raise its worth (goodput.h): a
// replica without a place gets one; a replica moves, or leaves if the others
// make better use of its memory; two replicas swap. Takes the replicas in the
// order of their names, and the best group for each, until a pass finds nothing
// or the limit is reached. The result depends on nothing else.
void Improve(const SearchLimits& limits, Assignment* a);

// Does the same only for some replicas and their neighbours.
void ImproveAround(const std::vector<uint32_t>& replicas,
                   const SearchLimits& limits, Assignment* a);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_POLICY_LOCAL_SEARCH_H_

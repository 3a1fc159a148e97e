#ifndef DAEMON_PLAN_POLICY_LOCAL_SEARCH_H_
#define DAEMON_PLAN_POLICY_LOCAL_SEARCH_H_

#include <cstdint>
#include <vector>

#include "daemon/plan/score/goodput.h"

namespace fineserve::plan {

struct SearchLimits {
  // How many groups are tried for a move, those with the most room first. A
  // cluster with fewer GPUs is searched whole.
  size_t targets = 48;
  size_t swap_targets = 8;
  int passes = 8;
  // Groups that are tried in all, for each replica; of few replicas all are.
  uint64_t tries_of_replica = 30;
  // How often a few replicas are taken out at once and put back, to leave an
  // assignment that no single step betters. On few replicas alone.
  int kicks = 24;
  uint64_t kick_tries = 20'000;  // groups tried in all kicks together
  size_t kicked_replicas = 32;
};

// Betters an assignment by steps that each better its worth (goodput.h): a
// replica that has no place gets one, if need be where another one moves out; a
// replica moves, or leaves if the others make more of its memory; two swap.
// Replicas in the order of their names, the best group for each, until a pass
// finds nothing or the limit is reached. The result depends on nothing else.
void Improve(const SearchLimits& limits, Assignment* a);

// Leaves an assignment that no single step betters: takes some replicas out,
// puts them back one by one, betters the whole, and keeps what is worth more.
// While a model has no place, every other time two GPUs are emptied and packed
// again, the largest first, each where the least room is left.
// The random sequence is always the same.
void Kick(const SearchLimits& limits, Assignment* a);

// Does the same for some replicas alone, and for those that lie with them.
void ImproveAround(const std::vector<uint32_t>& replicas,
                   const SearchLimits& limits, Assignment* a);

}  // namespace fineserve::plan

#endif  // DAEMON_PLAN_POLICY_LOCAL_SEARCH_H_

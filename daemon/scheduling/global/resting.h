#ifndef DAEMON_SCHEDULING_GLOBAL_RESTING_H_
#define DAEMON_SCHEDULING_GLOBAL_RESTING_H_

#include "daemon/scheduling/global/model/assignment.h"
#include "daemon/scheduling/global/plan.h"

namespace fineserve::plan {

// Decides what rests beside a plan's replicas: its `resting`, `not_resting` and
// `hosts`. Nothing if no node's host memory is known.
//
// A place is a GPU that a model may use and has no replica on. One that rests
// keeps its context on the GPU, its process on the host, and its memory in the
// node's store, which holds equal weights once. A store that is short gives up
// its copies of engines that are on the GPU, so these copies count nothing
// here.
//
// Each node is filled by itself. If the snapshot names the places that are off
// and have a process, only these may rest: those that do so already come first,
// so that rates which change a little end none of them, then the others. Both
// are filled in rounds: one place of each model, then a second one of each.
// Within a round, the models with the most requests/s for a byte of host memory
// come first, since these are the requests that a resting place saves the wait
// for a start. A model rests on the GPU that has the most memory left, beside
// the KV that its residents need at `burst` times the rates: so resting costs
// the placement nothing of its goodput and headroom.
//
// The first place that the host memory does not hold ends the node's list. The
// order does not depend on how much there is, so more memory adds places and
// never ends one.
void SetResting(const Assignment& a, Plan* plan);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_RESTING_H_

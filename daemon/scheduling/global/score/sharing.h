#ifndef DAEMON_SCHEDULING_GLOBAL_SCORE_SHARING_H_
#define DAEMON_SCHEDULING_GLOBAL_SCORE_SHARING_H_

#include <vector>

#include "daemon/scheduling/global/model/assignment.h"
#include "daemon/scheduling/global/score/goodput.h"

namespace fineserve::plan {

// How the engines of a GPU get its KV.
enum class Sharing {
  kPool,       // all from one pool, where it yields most (goodput.h)
  kFootprint,  // a fixed part for each, in proportion to F_M
  kEqual,      // a fixed part for each, the same beyond the floors
  // One engine at a time has the whole GPU, for as long as it needs. Switching
  // between engines costs nothing here, so this is an upper bound on what
  // time-sharing can do.
  kTime,
};

// Returns each hosted replica's share and throughput at `load` times its
// demand, in the order of the replicas.
std::vector<Share> SharesOf(const Assignment& a, Sharing sharing, double load);

Worth WorthOf(const Assignment& a, Sharing sharing);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_SCORE_SHARING_H_

#ifndef DAEMON_SCHEDULING_GLOBAL_TROUBLES_H_
#define DAEMON_SCHEDULING_GLOBAL_TROUBLES_H_

#include <vector>

#include "daemon/scheduling/global/model/assignment.h"
#include "daemon/scheduling/global/plan.h"

namespace fineserve::plan {

// Returns what the assignment leaves undone: rates and SLOs that no number of
// replicas meets, and replicas without a place. Each comes with the smallest
// change that fixes it: how many bytes a group lacks, or what TP or GPU could
// hold the replica at all.
std::vector<Trouble> FindTroubles(const Assignment& a, Charge charge);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_TROUBLES_H_

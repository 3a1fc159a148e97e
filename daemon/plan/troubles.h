#ifndef DAEMON_PLAN_TROUBLES_H_
#define DAEMON_PLAN_TROUBLES_H_

#include <vector>

#include "daemon/plan/model/assignment.h"
#include "daemon/plan/plan.h"

namespace fineserve::plan {

// Returns what the assignment leaves undone: rates and SLOs that no number of
// replicas meets, and replicas without a place. Each comes with the smallest
// change that mends it: how many bytes a group lacks, or what TP or GPU could
// hold the replica at all.
std::vector<Trouble> FindTroubles(const Assignment& a, Charge charge);

}  // namespace fineserve::plan

#endif  // DAEMON_PLAN_TROUBLES_H_

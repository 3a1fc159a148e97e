#ifndef DAEMON_ADMISSION_WAITING_IN_VAIN_H_
#define DAEMON_ADMISSION_WAITING_IN_VAIN_H_

#include <set>
#include <vector>

#include "daemon/admission/rooms/set_rooms.h"
#include "daemon/sched/local_scheduler.h"
#include "daemon/wire/newest_plan.h"

namespace fineserve::admission {

// The requests that wait for a model of which the plan ends every engine here,
// in the order in which they came: they have an engine elsewhere, and their
// time runs. Pure.
std::set<sched::RequestId> WaitingInVain(
    const std::vector<ServingEngine>& engines, const wire::NewestPlan& plan,
    const sched::LocalScheduler& scheduler);

}  // namespace fineserve::admission

#endif  // DAEMON_ADMISSION_WAITING_IN_VAIN_H_

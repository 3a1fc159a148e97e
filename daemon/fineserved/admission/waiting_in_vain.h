#ifndef DAEMON_FINESERVED_ADMISSION_WAITING_IN_VAIN_H_
#define DAEMON_FINESERVED_ADMISSION_WAITING_IN_VAIN_H_

#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/fineserved/admission/rooms/set_rooms.h"
#include "daemon/scheduling/local/local_scheduler.h"

namespace fineserve::admission {

// The requests that wait for a model that has engines here, of which none will
// take one, in the order in which they came: they may have an engine elsewhere,
// and their time runs. `takes_none` says whether an engine is ended by the plan
// or an operator, rather than away for a while. Pure.
std::set<sched::RequestId> WaitingInVain(
    const std::vector<ServingEngine>& engines,
    absl::FunctionRef<bool(const std::string& engine)> takes_none,
    const sched::LocalScheduler& scheduler);

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_WAITING_IN_VAIN_H_

#ifndef DAEMON_FINESERVED_ADMISSION_WAITING_IN_VAIN_H_
#define DAEMON_FINESERVED_ADMISSION_WAITING_IN_VAIN_H_

#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/fineserved/admission/rooms/set_rooms.h"
#include "daemon/scheduling/local/local_scheduler.h"

namespace fineserve::admission {

// Returns the requests, in order of arrival, whose model has engines here but
// none that will take them: another daemon may have one, and the requests' time
// is running out. `takes_none` is true for an engine that the plan or an
// operator has ended, rather than one that is away for a while. Pure.
std::set<sched::RequestId> WaitingInVain(
    const std::vector<ServingEngine>& engines,
    absl::FunctionRef<bool(const std::string& engine)> takes_none,
    const sched::LocalScheduler& scheduler);

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_WAITING_IN_VAIN_H_

#ifndef TESTS_INTEGRATION_MACHINES_HELD_PLAN_H_
#define TESTS_INTEGRATION_MACHINES_HELD_PLAN_H_

#include <sys/types.h>

#include <memory>

#include "tools/lab/process/traced_thread.h"

namespace fineserve::integration {

// Stops the thread of a leading fineserved that is about to send its plan to
// another machine's daemon, at the system call that would send it: the worst
// moment for a leader to fall asleep. Returns null if no such thread appears in
// time, or if ptrace is not permitted. Only the calling thread may use the
// returned object; releasing the thread sends the plan.
std::unique_ptr<process::TracedThread> HoldBeforePlan(pid_t daemon);

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_MACHINES_HELD_PLAN_H_

#ifndef TESTS_INTEGRATION_MACHINES_HELD_PLAN_H_
#define TESTS_INTEGRATION_MACHINES_HELD_PLAN_H_

#include <sys/types.h>

#include <memory>

#include "tools/lab/process/traced_thread.h"

namespace fineserve::integration {

// Stops the thread of a leading fineserved that is about to tell another
// machine's daemon its plan, at the system call that would: the worst moment at
// which a leader can fall asleep. Null if none is within a time, or ptrace is
// not permitted. Only the calling thread may use what is returned; letting it
// go tells the plan.
std::unique_ptr<process::TracedThread> HoldBeforePlan(pid_t daemon);

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_MACHINES_HELD_PLAN_H_

#ifndef DAEMON_ABI_PROCESS_START_H_
#define DAEMON_ABI_PROCESS_START_H_

#include <sys/types.h>

#include <cstdint>

#include "kernels/driver/descriptor.h"

namespace fineserve::abi {

// Start time of the process in clock ticks after the machine's boot (field 22
// of /proc/PID/stat): a later process with the same pid has another start. 0 if
// there is no such process.
uint64_t ProcessStart(pid_t pid);

// A number that another program in the same process (exec) does not have, as
// far as the kernel places stacks at random: where the stack begins. 0 if it
// cannot be known. Not to be kept beyond this run of the caller.
uint64_t ProcessImage(pid_t pid);

// A pidfd of the process with this pid that started then, or of any if `start`
// is 0; not valid, with errno set, if it has gone (ESRCH) or cannot be watched.
driver::Descriptor OpenPidfd(pid_t pid, uint64_t start);

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_PROCESS_START_H_

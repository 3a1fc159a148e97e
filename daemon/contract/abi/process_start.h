#ifndef DAEMON_CONTRACT_ABI_PROCESS_START_H_
#define DAEMON_CONTRACT_ABI_PROCESS_START_H_

#include <sys/types.h>

#include <cstdint>

#include "kernels/driver/descriptor.h"

namespace fineserve::abi {

// Returns a numeric field of /proc/PID/stat, counted from 1 as in proc(5); 0 if
// there is no such process.
uint64_t StatField(pid_t pid, int number);

// Returns the start time of the process in clock ticks after the machine's boot
// (field 22 of /proc/PID/stat): a later process with the same pid has another
// start time. 0 if there is no such process.
uint64_t ProcessStart(pid_t pid);

// Returns what identifies the program that a process runs: its start in the low
// 40 bits, and above them 24 bits of the address where its stack begins. Since
// the kernel places stacks at random, another program in the same process
// (exec) has different stack bits. They are 0 if the kernel hides them. The
// result is 0 if there is no such process.
uint64_t ProcessImage(pid_t pid);

// The ProcessStart in an image.
uint64_t StartOf(uint64_t image);

// True if both values can be images of the same program.
bool IsSameImage(uint64_t a, uint64_t b);

// Returns a pidfd of the process with this pid and start time, or with any
// start time if `start` is 0; not valid, with errno set, if it has gone (ESRCH)
// or cannot be watched.
driver::Descriptor OpenPidfd(pid_t pid, uint64_t start);

// True if the program with that image has ended, or its process now runs
// another program. False if that cannot be determined.
bool HasEnded(pid_t pid, uint64_t image);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_PROCESS_START_H_

#ifndef DAEMON_CONTRACT_ABI_PROCESS_START_H_
#define DAEMON_CONTRACT_ABI_PROCESS_START_H_

#include <sys/types.h>

#include <cstdint>

#include "kernels/driver/descriptor.h"

namespace fineserve::abi {

// A numeric field of /proc/PID/stat, counted from 1 as proc(5) does; 0 if there
// is no such process.
uint64_t StatField(pid_t pid, int number);

// Start time of the process in clock ticks after the machine's boot (field 22
// of /proc/PID/stat): a later process with the same pid has another start. 0 if
// there is no such process.
uint64_t ProcessStart(pid_t pid);

// Identifies the program that a process runs: its start in the low 40 bits, and
// above them 24 bits of the address where its stack begins. Since the kernel
// places stacks at random, another program in the same process (exec) has
// others. They are 0 if the kernel does not tell. 0 if there is no such
// process.
uint64_t ProcessImage(pid_t pid);

// The ProcessStart in an image.
uint64_t StartOf(uint64_t image);

// True if these can be images of one program.
bool IsSameImage(uint64_t a, uint64_t b);

// A pidfd of the process with this pid that started then, or of any if `start`
// is 0; not valid, with errno set, if it has gone (ESRCH) or cannot be watched.
driver::Descriptor OpenPidfd(pid_t pid, uint64_t start);

// True if the program with that image has ended, or its process runs another
// one. False if that cannot be found out.
bool HasEnded(pid_t pid, uint64_t image);

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_PROCESS_START_H_

#ifndef BENCH_MICRO_PROCESS_USAGE_H_
#define BENCH_MICRO_PROCESS_USAGE_H_

#include <sys/types.h>

#include <cstdint>

namespace fineserve::bench {

// Resources that a running process has used; 0 if it has ended.

// Returns the CPU time of all its threads since their start, precise to ns
// (/proc/PID/task/TID/schedstat).
double CpuSecondsOf(pid_t pid);
uint64_t ResidentBytesOf(pid_t pid);

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_PROCESS_USAGE_H_

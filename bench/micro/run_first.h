#ifndef BENCH_MICRO_RUN_FIRST_H_
#define BENCH_MICRO_RUN_FIRST_H_

#include <sys/types.h>

namespace fineserve::bench {

// Makes this process, and those that it starts, run before all others
// (SCHED_FIFO). Returns false if that is not permitted.
bool RunFirst();

// Does the same for one thread (0: this one), but for none that it starts.
bool RunThreadFirst(pid_t thread);

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_RUN_FIRST_H_

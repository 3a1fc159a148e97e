#ifndef BENCH_MICRO_RUN_FIRST_H_
#define BENCH_MICRO_RUN_FIRST_H_

#include <sys/types.h>

namespace fineserve::bench {

// Runs this process and those that it starts before all others (SCHED_FIFO).
// False where that is not permitted.
bool RunFirst();

// The same of one thread (0: this one), and of none that it starts.
bool RunThreadFirst(pid_t thread);

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_RUN_FIRST_H_

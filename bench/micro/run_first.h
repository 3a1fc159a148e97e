#ifndef BENCH_MICRO_RUN_FIRST_H_
#define BENCH_MICRO_RUN_FIRST_H_

namespace fineserve::bench {

// Runs this process and those that it starts before all others (SCHED_FIFO).
// False where that is not permitted.
bool RunFirst();

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_RUN_FIRST_H_

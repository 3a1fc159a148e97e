#ifndef BENCH_SOAK_INTERRUPT_H_
#define BENCH_SOAK_INTERRUPT_H_

namespace fineserve::bench {

// From now on, SIGINT and SIGTERM do not end this process but make Interrupted
// true, so that the processes that it has started are ended and its folders are
// removed. Errors after that are not failures.
void CatchInterrupts();
bool Interrupted();

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_INTERRUPT_H_

#ifndef BENCH_MICRO_HANDOVER_WATCH_H_
#define BENCH_MICRO_HANDOVER_WATCH_H_

#include <atomic>
#include <cstdint>
#include <vector>

namespace fineserve::bench {

// Slabs that went from one engine to another because they were asked back, by
// the times in the slab table. In ms.
struct HandOvers {
  std::vector<double> whole_ms;   // asked back to leased
  std::vector<double> return_ms;  // asked back to returned
  std::vector<double> zero_ms;    // returned to leased: its zero fill
  uint64_t asked_back = 0;        // as the daemon counts
};

// Watches the only daemon in the runtime folder until `ending`. A hand-over
// whose steps follow one another too fast for it to see them is left out.
HandOvers Watch(const std::atomic<bool>* ending);

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_HANDOVER_WATCH_H_

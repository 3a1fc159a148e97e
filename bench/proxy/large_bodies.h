#ifndef BENCH_PROXY_LARGE_BODIES_H_
#define BENCH_PROXY_LARGE_BODIES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::bench {

// Content of a body of some 31 MiB.
enum class LargeBody {
  kText,    // one long prompt
  kTokens,  // one list of token ids
  kChunks,  // the prompt again, in chunks: its length is not known beforehand
};

// Waits of a probe that runs beside large bodies.
struct Beside {
  std::vector<double> waits_ms;  // sorted
  uint64_t bodies = 0;           // that were answered
  double WaitMs(double q) const;
};

// For `seconds`, `connections` clients send such bodies, each client the next
// one as soon as it has its answer. Beside them a probe asks for /health every
// few milliseconds, on a thread that runs before all others if that is
// permitted.
Beside MeasureBeside(uint16_t port, LargeBody kind, int connections,
                     double seconds);

}  // namespace fineserve::bench

#endif  // BENCH_PROXY_LARGE_BODIES_H_

#ifndef BENCH_MICRO_PUBLISHED_LATENCY_H_
#define BENCH_MICRO_PUBLISHED_LATENCY_H_

#include <cstdint>

namespace fineserve::bench {

// The cost of driver calls on an A100 in ns, as published by kvcached.
struct DriverLatency {
  uint64_t create_ns = 193'000;     // cuMemCreate
  uint64_t set_access_ns = 36'000;  // cuMemSetAccess
  uint64_t unmap_ns = 26'000;       // cuMemUnmap
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_PUBLISHED_LATENCY_H_

#ifndef BENCH_PROXY_LOAD_H_
#define BENCH_PROXY_LOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/proxy/upstream.h"

namespace fineserve::bench {

// Measurements on the client side.
struct Load {
  uint64_t requests = 0;
  double seconds = 0;
  std::vector<double> latencies_us;  // sorted; from request to answer's end

  double PerSecond() const { return static_cast<double>(requests) / seconds; }
  // q in [0, 1]
  double LatencyUs(double q) const;
};

// Runs a closed loop: for `seconds`, each connection asks again as soon as it
// has its answer. It uses one thread and epoll.
Load RunLoad(uint16_t port, Kind kind, int connections, double seconds);

// Opens streaming connections, reads one event from each, and leaves them open.
// Returns their descriptors, which the caller closes.
std::vector<int> HoldStreams(uint16_t port, int connections);

}  // namespace fineserve::bench

#endif  // BENCH_PROXY_LOAD_H_

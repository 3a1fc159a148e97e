#ifndef DAEMON_PROXY_RELAY_LIMITS_H_
#define DAEMON_PROXY_RELAY_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace fineserve::proxy {

// Limits on one client's part of the proxy, and on its time.
struct Limits {
  size_t header_bytes = 32 << 10;
  uint64_t body_bytes = 32 << 20;
  // Limit on the bytes of all bodies together, until engines have them
  // (BodyBudget).
  uint64_t bodies_bytes = 512 << 20;
  size_t connections = 20'000;
  uint32_t idle_s = 75;     // between two requests
  uint32_t receive_s = 30;  // for a header, and for each piece of a body
  // Seconds for a whole body: the largest one arrives in time at 1 Mbit/s.
  uint32_t body_s = 300;
  // Limits on a client that reads nothing of its answer, or less than
  // `least_rate` bytes per second, since the daemon keeps the request's place
  // until the answer is taken.
  uint32_t stall_s = 60;
  uint32_t least_rate = 4 << 10;
  uint64_t stall_ns() const { return stall_s * 1'000'000'000ull; }
  // Seconds for a viewer of the page that reads nothing, since its next frame
  // would be out of date.
  uint32_t viewer_stall_s = 10;
  uint32_t linger_s = 10;  // for what it still sends after a refusal
  uint32_t connect_s = 5;  // for an engine to accept
  // Seconds for an engine to count a prompt's tokens. An engine that needs
  // longer than an SLO would miss the SLO anyway.
  uint32_t count_s = 1;
  // Seconds for an engine to say whether it has a response, which vLLM looks up
  // in a table.
  uint32_t lookup_s = 5;
  // Seconds for each fsctl up to say where an engine's log is; 0: no log is
  // shown.
  uint32_t log_s = 2;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_LIMITS_H_

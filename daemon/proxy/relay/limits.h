#ifndef DAEMON_PROXY_RELAY_LIMITS_H_
#define DAEMON_PROXY_RELAY_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace fineserve::proxy {

// Limits on one client's part of the proxy, and on its time.
struct Limits {
  size_t header_bytes = 32 << 10;
  uint64_t body_bytes = 32 << 20;
  // Bytes of all bodies together, until engines have them (BodyBudget).
  uint64_t bodies_bytes = 512 << 20;
  size_t connections = 20'000;
  uint32_t idle_s = 75;     // between two requests
  uint32_t receive_s = 30;  // for a header, and for each piece of a body
  // For a whole body: the largest one comes in time at 1 Mbit/s.
  uint32_t body_s = 300;
  // For a client that takes nothing of its answer, or less than the rate in
  // bytes per second, since the daemon keeps the request's place until the
  // answer is taken.
  uint32_t stall_s = 60;
  uint32_t least_rate = 4 << 10;
  uint64_t stall_ns() const { return stall_s * 1'000'000'000ull; }
  // For a viewer of the page that takes nothing, since what it would see is
  // old.
  uint32_t viewer_stall_s = 10;
  uint32_t linger_s = 10;  // for what it still sends after a refusal
  uint32_t connect_s = 5;  // for an engine to accept
  // For an engine to count a prompt's tokens. An engine that needs longer than
  // SLOs are would not meet them either.
  uint32_t count_s = 1;
  // For an engine to say whether it has a response. vLLM looks into a table.
  uint32_t lookup_s = 5;
  // For each fsctl up to say where an engine's log is; 0: no log is shown.
  uint32_t log_s = 2;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_RELAY_LIMITS_H_

#ifndef BENCH_PROXY_UPSTREAM_H_
#define BENCH_PROXY_UPSTREAM_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "tools/lab/process/child_process.h"

namespace fineserve::bench {

// Kinds of request in this bench, chosen by a word in the body.
enum class Kind {
  kPlain,   // one JSON answer of 1 KiB
  kStream,  // kEvents server-sent events, one a millisecond
  kHold,    // one event, then silence
};

constexpr int kEvents = 32;

// A process that answers like an engine whose tokens cost nothing: one thread,
// epoll, keep-alive, and only the parsing that it needs. Ends with its parent.
class Upstream {
 public:
  Upstream();
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  uint16_t port() const { return port_; }

 private:
  absl::optional<process::ChildProcess> server_;
  uint16_t port_ = 0;
};

}  // namespace fineserve::bench

#endif  // BENCH_PROXY_UPSTREAM_H_

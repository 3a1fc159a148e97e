#ifndef DAEMON_PROXY_PAGE_POOL_HISTORY_H_
#define DAEMON_PROXY_PAGE_POOL_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/proxy/page/gpu_watch.h"

namespace fineserve::proxy {

// The last hour of every pool: the bytes that each engine held at moments about
// kPeriodNs apart. All pools share the moments; where a pool's daemon did not
// answer, the pool has a gap. An engine that left stays in the history under
// its name, and the next engine of that name continues it. Takes 8 bytes per
// moment and engine. Not thread-safe.
class PoolHistory {
 public:
  static constexpr uint64_t kPeriodNs = 15'000'000'000;
  static constexpr uint64_t kAgeNs = 3'600'000'000'000;

  // The time of the next moment; 0 before the first. Times are of one clock
  // that only grows.
  uint64_t due_ns() const {
    return moments_.empty() ? 0 : moments_.back() + kPeriodNs;
  }
  // Adds the moment `now_ns`, and forgets those older than kAgeNs.
  void Add(uint64_t now_ns, const std::vector<GpuSight>& sights);

  // A JSON object on one line; empty while there is no pool. `zero_ms`: of the
  // clock, as UNIX time. An array has one value for each of `times`, which are
  // UNIX ms; null is a gap, in which the engines have 0; others are bytes.
  //
  //   {"period_ms":15000,"times":[…],"gpus":[{"name":"GPU-…",
  //    "present":[…],"engines":[{"name":"chat","held":[…]},…]},…]}
  std::string Text(int64_t zero_ms) const;

 private:
  using Held = std::deque<uint64_t>;
  struct Gpu {
    std::deque<absl::optional<uint64_t>> present;
    std::map<std::string, Held> engines;  // by name
  };

  void Forget(uint64_t now_ns);
  // `table` comes from the daemon if it answers; null: a gap.
  void AddTo(Gpu* gpu, const abi::TableSnapshot* table) const;
  static std::string GpuText(const std::string& name, const Gpu& gpu);

  std::deque<uint64_t> moments_;     // ns, oldest first
  std::map<std::string, Gpu> gpus_;  // by name; each has all moments
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_PAGE_POOL_HISTORY_H_

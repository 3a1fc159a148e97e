#ifndef DAEMON_BASE_CLOCK_CLOCK_H_
#define DAEMON_BASE_CLOCK_CLOCK_H_

#include <time.h>

#include <cstdint>

#include "absl/time/time.h"

namespace fineserve {

// The time on which decisions are based. Injected by constructor, so that tests
// can set it. Nanoseconds of CLOCK_MONOTONIC, which all processes of a machine
// share.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t NowNs() const = 0;
};

// Any thread.
class RealClock final : public Clock {
 public:
  uint64_t NowNs() const override {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(t.tv_nsec);
  }
};

// A clock that moves only by AdvanceNs. Confined to one thread.
class ManualClock final : public Clock {
 public:
  uint64_t NowNs() const override { return now_ns_; }
  void AdvanceNs(uint64_t ns) { now_ns_ += ns; }

 private:
  uint64_t now_ns_ = 0;
};

// Returns the time for deadlines, from CLOCK_MONOTONIC, which cannot be set.
// With the wall clock, setting the clock back by an hour would make a wait an
// hour longer.
inline absl::Time SteadyNow() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return absl::TimeFromTimespec(t);
}

}  // namespace fineserve

#endif  // DAEMON_BASE_CLOCK_CLOCK_H_

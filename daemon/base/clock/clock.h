#ifndef DAEMON_BASE_CLOCK_CLOCK_H_
#define DAEMON_BASE_CLOCK_CLOCK_H_

#include <time.h>

#include <cstdint>

#include "absl/time/time.h"

namespace fineserve {

// The time as a decision sees it: injected by constructor, so that tests set
// it. Nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
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

// The time for deadlines: CLOCK_MONOTONIC, which is never set. With the wall
// clock a wait would last as long as the clock was set back.
inline absl::Time SteadyNow() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return absl::TimeFromTimespec(t);
}

}  // namespace fineserve

#endif  // DAEMON_BASE_CLOCK_CLOCK_H_

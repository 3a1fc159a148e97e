#ifndef DAEMON_CLOCK_CLOCK_H_
#define DAEMON_CLOCK_CLOCK_H_

#include <time.h>

#include <cstdint>

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

// Moves only by AdvanceNs. Confined to one thread.
class ManualClock final : public Clock {
 public:
  uint64_t NowNs() const override { return now_ns_; }
  void AdvanceNs(uint64_t ns) { now_ns_ += ns; }

 private:
  uint64_t now_ns_ = 0;
};

}  // namespace fineserve

#endif  // DAEMON_CLOCK_CLOCK_H_

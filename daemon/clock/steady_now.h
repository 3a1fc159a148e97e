#ifndef DAEMON_CLOCK_STEADY_NOW_H_
#define DAEMON_CLOCK_STEADY_NOW_H_

#include <time.h>

#include "absl/time/time.h"

namespace fineserve {

// The time for deadlines: CLOCK_MONOTONIC, which is never set. With the wall
// clock a wait would last as long as the clock was set back.
inline absl::Time SteadyNow() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return absl::TimeFromTimespec(t);
}

}  // namespace fineserve

#endif  // DAEMON_CLOCK_STEADY_NOW_H_

#include "bench/micro/run_first.h"

#include <sched.h>

namespace fineserve::bench {

bool RunFirst() {
  const sched_param priority = {.sched_priority = 1};
  return sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
}

bool RunThreadFirst(pid_t thread) {
  const sched_param priority = {.sched_priority = 1};
  return sched_setscheduler(thread, SCHED_FIFO | SCHED_RESET_ON_FORK,
                            &priority) == 0;
}

}  // namespace fineserve::bench

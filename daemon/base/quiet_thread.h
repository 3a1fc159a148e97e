#ifndef DAEMON_BASE_QUIET_THREAD_H_
#define DAEMON_BASE_QUIET_THREAD_H_

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace fineserve::base {

// Starts a thread that blocks all signals of the process, since they are for
// the thread that waits for them.
template <typename Run>
std::thread QuietThread(Run run) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(run));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace fineserve::base

#endif  // DAEMON_BASE_QUIET_THREAD_H_

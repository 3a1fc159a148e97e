#ifndef TOOLS_FSCTL_TERMINAL_SIGNAL_WATCH_H_
#define TOOLS_FSCTL_TERMINAL_SIGNAL_WATCH_H_

#include <signal.h>

#include <cstdint>

namespace fineserve::fsctl {

// SIGINT, SIGTERM, SIGHUP and SIGWINCH as events, for a program that must tidy
// up first: blocked, and let through while it waits only. As before when the
// object dies. One at a time, in a program of one thread.
class SignalWatch {
 public:
  SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  enum class Input { kNone, kThere, kEnded };
  // Waits until `fd` can be read or has ended, a signal arrives, or so much
  // time has passed.
  Input WaitFor(int fd, uint64_t timeout_ns);

  // The signal that asks for the end, or 0.
  int ending() const;
  // Whether the terminal has been resized since the last call.
  bool TakeResize();

 private:
  sigset_t before_;
  struct sigaction actions_before_[4];
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_SIGNAL_WATCH_H_

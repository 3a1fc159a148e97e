#ifndef TOOLS_FSCTL_TERMINAL_SIGNAL_WATCH_H_
#define TOOLS_FSCTL_TERMINAL_SIGNAL_WATCH_H_

#include <signal.h>

#include <cstdint>

namespace fineserve::fsctl {

// Turns SIGINT, SIGTERM, SIGHUP and SIGWINCH into events, for a program that
// must clean up before it ends: the signals are blocked except during WaitFor.
// The destructor restores the former handling. One at a time, in a
// single-threaded program.
class SignalWatch {
 public:
  // Meaning of SIGHUP: it ends the program, or TakeHangup reports it.
  enum class Hangup { kEnds, kIsTold };

  explicit SignalWatch(Hangup hangup = Hangup::kEnds);
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  enum class Input { kNone, kReady, kEnded };
  // Waits until `fd` can be read or has ended, a signal arrives, or the time is
  // over. Ignores a negative `fd`.
  Input WaitFor(int fd, uint64_t timeout_ns);

  // The signal that asks the program to end, or 0.
  int ending() const;
  // True if the terminal has been resized since the last call.
  bool TakeResize();
  // True if SIGHUP has arrived since the last call and does not end the
  // program.
  bool TakeHangup();

 private:
  sigset_t before_;
  struct sigaction actions_before_[4];
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_SIGNAL_WATCH_H_

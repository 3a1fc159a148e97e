#include "tools/fsctl/terminal/signal_watch.h"

#include <poll.h>
#include <time.h>

#include <iterator>
#include <type_traits>

namespace fineserve::fsctl {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};

volatile sig_atomic_t ending_signal = 0;
volatile sig_atomic_t resized = 0;
volatile sig_atomic_t hangup_ends = 1;
volatile sig_atomic_t hung_up = 0;

void Note(int signal) {
  if (signal == SIGWINCH) {
    resized = 1;
  } else if (signal == SIGHUP && hangup_ends == 0) {
    hung_up = 1;
  } else {
    ending_signal = signal;
  }
}

}  // namespace

SignalWatch::SignalWatch(Hangup hangup) {
  static_assert(std::size(kSignals) ==
                std::extent_v<decltype(actions_before_)>);
  ending_signal = 0;
  resized = 0;
  hung_up = 0;
  hangup_ends = hangup == Hangup::kEnds ? 1 : 0;
  sigset_t ours;
  sigemptyset(&ours);
  struct sigaction note = {};
  note.sa_handler = Note;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaddset(&ours, kSignals[i]);
    sigaction(kSignals[i], &note, &actions_before_[i]);
  }
  sigprocmask(SIG_BLOCK, &ours, &before_);
}

SignalWatch::~SignalWatch() {
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &actions_before_[i], nullptr);
  }
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

SignalWatch::Input SignalWatch::WaitFor(int fd, uint64_t timeout_ns) {
  constexpr uint64_t kSecond = 1'000'000'000;
  const timespec timeout = {static_cast<time_t>(timeout_ns / kSecond),
                            static_cast<long>(timeout_ns % kSecond)};  // NOLINT
  sigset_t while_waiting = before_;
  for (const int signal : kSignals) sigdelset(&while_waiting, signal);
  pollfd ready = {fd, POLLIN, 0};
  if (ppoll(&ready, 1, &timeout, &while_waiting) != 1) return Input::kNone;
  return ready.revents == POLLIN ? Input::kReady : Input::kEnded;
}

int SignalWatch::ending() const { return ending_signal; }

bool SignalWatch::TakeResize() {
  const bool was = resized != 0;
  resized = 0;
  return was;
}

bool SignalWatch::TakeHangup() {
  const bool was = hung_up != 0;
  hung_up = 0;
  return was;
}

}  // namespace fineserve::fsctl

#include "daemon/fineserved/holder/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "daemon/base/errno_status.h"
#include "daemon/base/log/log.h"
#include "daemon/fineserved/holder/kept_descriptors.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::holder {
namespace {

constexpr uint64_t kFirstPauseMs = 10;
constexpr uint64_t kLongestPauseMs = 5'000;
// Heuristic: a child that has lived this long is started again at once. A start
// takes some 10 ms, so that a daemon that always fails then takes a twentieth
// of a core.
constexpr uint64_t kStableMs = 200;
// Time that a child may take to end once it was asked to stop.
constexpr uint64_t kStopMs = 10'000;

uint64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000 +
         static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

sigset_t Handled() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR2}) {
    sigaddset(&set, signal);
  }
  return set;
}

std::string Describe(int status) {
  return WIFSIGNALED(status)
             ? fmt::format("died of signal {} ({})", WTERMSIG(status),
                           strsignal(WTERMSIG(status)))
             : fmt::format("ended with status {}", WEXITSTATUS(status));
}

class Supervisor {
 public:
  Supervisor(std::string program, const std::vector<std::string>& arguments)
      : program_(std::move(program)),
        arguments_(arguments),
        kept_(KeptDescriptors::Listen()) {}

  int Run();

 private:
  [[noreturn]] void BecomeChild() const;
  void Start();
  void Stop(bool for_good);
  void OnSignal(int signal);
  void OnExit(int status);
  void Reap();
  void ReadNotifications();
  int WaitMs() const;
  void KeepTime();

  const std::string program_;
  const std::vector<std::string> arguments_;
  KeptDescriptors kept_;
  sigset_t former_mask_ = {};
  driver::Descriptor signals_;
  pid_t child_ = 0;           // 0: none
  bool was_ready_ = false;    // any child
  bool stopping_ = false;     // for good
  int exit_status_ = -1;      // ≥ 0: done
  uint64_t started_ms_ = 0;   // the child
  uint64_t pause_ms_ = 0;     // before the next start
  uint64_t start_at_ms_ = 0;  // while there is no child
  uint64_t kill_at_ms_ = 0;   // 0: the child was not asked to stop
};

int Supervisor::Run() {
  const sigset_t handled = Handled();
  sigprocmask(SIG_BLOCK, &handled, &former_mask_);
  signals_.Reset(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!kept_.valid() || !signals_.valid()) {
    log::Error("{}", base::WithErrno("cannot supervise"));
    return 1;
  }
  Start();
  while (exit_status_ < 0) {
    pollfd ready[] = {{signals_.get(), POLLIN, 0}, {kept_.socket(), POLLIN, 0}};
    poll(ready, 2, WaitMs());
    // Reads these first, so that descriptors which the child stored before it
    // died are kept.
    ReadNotifications();
    signalfd_siginfo signal;
    while (read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
      OnSignal(static_cast<int>(signal.ssi_signo));
    }
    Reap();
    KeepTime();
  }
  return exit_status_;
}

void Supervisor::BecomeChild() const {
  sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
  std::vector<char*> argv = {const_cast<char*>(program_.c_str())};
  for (const std::string& argument : arguments_) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  if (kept_.GiveToChild()) execv(program_.c_str(), argv.data());
  fprintf(stderr, "fineserved: %s\n",
          base::WithErrno("cannot start " + program_).c_str());
  _exit(127);
}

void Supervisor::Start() {
  started_ms_ = NowMs();
  kill_at_ms_ = 0;
  child_ = fork();
  if (child_ == 0) BecomeChild();
  if (child_ > 0) return;
  log::Error("{}", base::WithErrno("cannot fork"));
  child_ = 0;
  start_at_ms_ = started_ms_ + kLongestPauseMs;
}

void Supervisor::Stop(bool for_good) {
  stopping_ = stopping_ || for_good;
  if (child_ == 0) {
    if (stopping_) exit_status_ = 0;
    start_at_ms_ = NowMs();  // whatever has failed before
    return;
  }
  kill(child_, for_good ? SIGINT : SIGTERM);
  if (kill_at_ms_ == 0) kill_at_ms_ = NowMs() + kStopMs;
}

void Supervisor::OnSignal(int signal) {
  if (signal == SIGTERM || signal == SIGINT) Stop(/*for_good=*/true);
  if (signal == SIGUSR2) Stop(/*for_good=*/false);
  if (signal == SIGHUP && child_ > 0) kill(child_, SIGHUP);
}

void Supervisor::Reap() {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid == child_) OnExit(status);
  }
}

void Supervisor::OnExit(int status) {
  ReadNotifications();
  child_ = 0;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (stopping_ || !was_ready_) {
    exit_status_ = code;
    return;
  }
  const uint64_t now_ms = NowMs();
  const bool asked = kill_at_ms_ != 0;
  if (asked || now_ms - started_ms_ >= kStableMs) pause_ms_ = 0;
  start_at_ms_ = now_ms + pause_ms_;
  log::Warning(
      "fineserved {}; it is started again {}, and gets {} descriptors "
      "that were kept",
      Describe(status),
      pause_ms_ == 0 ? "at once" : fmt::format("in {} ms", pause_ms_),
      kept_.count());
  pause_ms_ = std::clamp(2 * pause_ms_, kFirstPauseMs, kLongestPauseMs);
}

void Supervisor::ReadNotifications() {
  std::string text;
  while (kept_.Receive(child_, &text)) {
    if (text.find("READY=1") != std::string::npos) was_ready_ = true;
    // Passes the text to our own parent, if it wants notifications.
    if (!text.empty()) sd_notify(/*unset_environment=*/0, text.c_str());
  }
}

int Supervisor::WaitMs() const {
  const uint64_t at_ms = child_ == 0 ? start_at_ms_ : kill_at_ms_;
  if (child_ != 0 && kill_at_ms_ == 0) return -1;
  const uint64_t now_ms = NowMs();
  return at_ms <= now_ms ? 0 : static_cast<int>(at_ms - now_ms);
}

void Supervisor::KeepTime() {
  if (exit_status_ >= 0) return;
  const uint64_t now_ms = NowMs();
  if (child_ == 0 && now_ms >= start_at_ms_) Start();
  if (child_ > 0 && kill_at_ms_ != 0 && now_ms >= kill_at_ms_) {
    kill(child_, SIGKILL);
    kill_at_ms_ = now_ms + kStopMs;
  }
}

}  // namespace

int Supervise(const std::string& program,
              const std::vector<std::string>& arguments) {
  return Supervisor(program, arguments).Run();
}

}  // namespace fineserve::holder

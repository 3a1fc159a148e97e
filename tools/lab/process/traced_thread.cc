#include "tools/lab/process/traced_thread.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "tools/lab/process/eventually.h"

namespace fineserve::process {

TracedThread::TracedThread(pid_t thread) : thread_(thread) {
  if (ptrace(PTRACE_SEIZE, thread, 0, PTRACE_O_TRACESYSGOOD) != 0) {
    thread_ = 0;
  } else {
    ptrace(PTRACE_INTERRUPT, thread, 0, 0);
  }
}

TracedThread::TracedThread(TracedThread&& other) noexcept
    : thread_(std::exchange(other.thread_, 0)), stands_(other.stands_) {}

TracedThread::~TracedThread() { Release(); }

bool TracedThread::StandsBefore(const Matches& matches) {
  if (stands_ || thread_ == 0) return stands_;
  int status = 0;
  if (waitpid(thread_, &status, __WALL | WNOHANG) != thread_) return false;
  if (!WIFSTOPPED(status)) {
    thread_ = 0;  // it has ended
    return false;
  }
  __ptrace_syscall_info call = {};
  const bool at_call =
      WSTOPSIG(status) == (SIGTRAP | 0x80) &&
      ptrace(static_cast<__ptrace_request>(PTRACE_GET_SYSCALL_INFO), thread_,
             sizeof(call), &call) > 0 &&
      call.op == PTRACE_SYSCALL_INFO_ENTRY;
  if (at_call && matches(call)) return stands_ = true;
  // A group stop or an interrupt is not a signal to pass on.
  const int signal = WSTOPSIG(status) & 0x7f;
  const bool own = signal == SIGTRAP || status >> 16 != 0;
  ptrace(PTRACE_SYSCALL, thread_, 0, own ? 0 : signal);
  return false;
}

bool TracedThread::StopBefore(const Matches& matches,
                              std::chrono::milliseconds limit) {
  return BecomesTrue([&] { return StandsBefore(matches) || thread_ == 0; },
                     limit) &&
         stands_;
}

void TracedThread::Release() {
  if (thread_ == 0) return;
  if (!stands_) {
    // Only a stopped thread can be detached.
    ptrace(PTRACE_INTERRUPT, thread_, 0, 0);
    int status = 0;
    if (waitpid(thread_, &status, __WALL) != thread_ || !WIFSTOPPED(status)) {
      thread_ = 0;
      return;
    }
  }
  ptrace(PTRACE_DETACH, thread_, 0, 0);
  thread_ = 0;
  stands_ = false;
}

}  // namespace fineserve::process

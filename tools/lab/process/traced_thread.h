#ifndef TOOLS_LAB_PROCESS_TRACED_THREAD_H_
#define TOOLS_LAB_PROCESS_TRACED_THREAD_H_

#include <sys/ptrace.h>
#include <sys/types.h>

#include <chrono>
#include <functional>

namespace fineserve::process {

// Follows a thread of another process from system call to system call, so that
// a test can stop or kill it at a chosen moment. Only the thread that made this
// object may use it. The destructor lets the followed thread go.
class TracedThread {
 public:
  // Returns true for a system call entry that matches.
  using Matches = std::function<bool(const __ptrace_syscall_info& call)>;

  explicit TracedThread(pid_t thread);
  TracedThread(TracedThread&& other) noexcept;
  TracedThread& operator=(TracedThread&&) = delete;
  ~TracedThread();

  // False if ptrace is not permitted or the thread has ended; errno says which.
  bool attached() const { return thread_ != 0; }
  pid_t thread() const { return thread_; }

  // True if the thread is about to make a system call that matches; the thread
  // is then kept stopped. Otherwise lets it run on if it has stopped. Never
  // waits.
  bool StandsBefore(const Matches& matches);
  // Repeats StandsBefore until it returns true; false if it does not within
  // `limit`.
  bool StopBefore(const Matches& matches, std::chrono::milliseconds limit);
  // Lets it go on by itself.
  void Release();

 private:
  pid_t thread_;  // 0: not ours
  bool stands_ = false;
};

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_TRACED_THREAD_H_

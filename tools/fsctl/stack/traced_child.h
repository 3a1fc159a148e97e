#ifndef TOOLS_FSCTL_STACK_TRACED_CHILD_H_
#define TOOLS_FSCTL_STACK_TRACED_CHILD_H_

#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fineserve::fsctl {

// A forked process of a test, which ends with this object or its parent.
class TracedChild {
 public:
  // `does` must not return.
  template <typename Does>
  explicit TracedChild(Does does) : pid_(fork()) {
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      does();
      _exit(1);
    }
  }
  ~TracedChild() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  TracedChild(const TracedChild&) = delete;
  TracedChild& operator=(const TracedChild&) = delete;

  pid_t pid() const { return pid_; }
  // Its status, once it has ended.
  int Await() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STACK_TRACED_CHILD_H_

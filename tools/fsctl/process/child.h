#ifndef TOOLS_FSCTL_PROCESS_CHILD_H_
#define TOOLS_FSCTL_PROCESS_CHILD_H_

#include <functional>
#include <string>

#include "absl/time/time.h"

namespace fineserve::fsctl {

struct ChildResult {
  std::string output;  // what it wrote, at most 64 KiB
  int exit_code = 0;
  int signal = 0;  // that ended it; 0: it exited
  bool timed_out = false;
};

// Forks a child that runs `body` with the write end of a pipe as its argument
// and exits with what it returns. Waits until the child has ended, kills it
// after `timeout`. The calling process must have a single thread.
ChildResult RunChild(const std::function<int(int output)>& body,
                     absl::Duration timeout);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROCESS_CHILD_H_

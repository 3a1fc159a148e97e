#ifndef TOOLS_FSCTL_STACK_THREAD_SNAPSHOT_H_
#define TOOLS_FSCTL_STACK_THREAD_SNAPSHOT_H_

#include <sys/types.h>
#include <sys/user.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fsctl/stack/python_frames.h"

namespace fineserve::fsctl {

// A thread of another process at one instant.
struct ThreadSnapshot {
  pid_t tid = 0;
  std::string name;
  char state = '?';         // proc(5), before it was stopped: R, S, D, T, t, Z
  std::string kernel_wait;  // kernel function; empty: none, or hidden
  double idle_s = -1;       // since it last ran; negative: unknown
  user_regs_struct registers = {};
  uint64_t stack_begin = 0;  // address of the first byte of `stack`
  std::string stack;         // used part, innermost first, at most kStackBytes
  PythonCalls python;        // of the interpreter that it runs, if any
  double stopped_s = 0;      // for which it was kept from running, at most
  std::string trouble;       // why there is no stack; empty: there is one
};

inline constexpr size_t kStackBytes = 256 << 10;
// The smallest page size of a kernel. Larger pages are read in parts of this
// size.
inline constexpr uint64_t kPageBytes = 4096;

// Copies registers and stacks of all threads of a process, by ptrace, with the
// calls that `python` finds. Each thread is stopped by itself, for the time
// that its copy takes (some 0.1 ms), and with real-time priority where this
// user may have it, so that nothing keeps a stopped thread waiting. A thread
// that does not stop, as in an uninterruptible wait in the kernel, is left
// alone. A process that SIGSTOP has stopped stays stopped.
//
// NotFound if the process has ended; PermissionDenied, with what to do, if this
// user may not trace it.
absl::StatusOr<std::vector<ThreadSnapshot>> SnapshotThreads(
    pid_t pid, const PythonReader* python = nullptr);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STACK_THREAD_SNAPSHOT_H_

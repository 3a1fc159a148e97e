#ifndef TOOLS_FSCTL_STACK_PROCESS_STACKS_H_
#define TOOLS_FSCTL_STACK_PROCESS_STACKS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fsctl/processes/address_map.h"
#include "tools/fsctl/stack/python_frames.h"
#include "tools/fsctl/stack/thread_snapshot.h"

namespace fineserve::fsctl {

struct Frame {
  uint64_t address = 0;
  AddressMap::Place place;
};

struct ThreadStack {
  ThreadSnapshot thread;                 // without its copy of the stack
  std::vector<Frame> frames;             // innermost first
  std::vector<PythonFrame> python = {};  // innermost first
  std::string python_trouble = {};       // why some of these are missing
};

// Where each thread of a process is.
struct ProcessStacks {
  pid_t pid = 0;
  std::vector<ThreadStack> threads;  // by id
  // Says why no thread shows its Python functions; empty if they do, or the
  // process has none.
  std::string python_trouble = {};

  double LongestStop() const;  // of a thread, in s
};

// Errors as SnapshotThreads'.
absl::StatusOr<ProcessStacks> StacksOf(pid_t pid);

// Returns the function that best shows what the thread does: the innermost
// function of CUDA or NCCL, else the innermost outside the C and C++ libraries,
// else the kernel's. Empty if unknown.
std::string TellingFunction(const ThreadStack& stack);

// "thread 4711 waits in cuStreamSynchronize for Python's Engine.step
// (engine.py:12), last ran 92 s ago".
std::string Sentence(const ThreadStack& stack);

// Returns the sentence of the thread that an operator should look at first: one
// that is in CUDA or NCCL, else the first thread. Empty if there is none.
std::string Summary(const ProcessStacks& stacks);

// The same for a process and all its descendants; if they cannot be traced,
// returns the reason.
std::string SummaryOfTree(pid_t pid);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STACK_PROCESS_STACKS_H_

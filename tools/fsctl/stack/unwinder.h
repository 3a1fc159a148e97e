#ifndef TOOLS_FSCTL_STACK_UNWINDER_H_
#define TOOLS_FSCTL_STACK_UNWINDER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/fsctl/processes/address_map.h"
#include "tools/fsctl/stack/thread_snapshot.h"

namespace fineserve::fsctl {

// Walks copied stacks of one process by libunwind, while the process continues.
// Reads unwind tables from the process's memory, where the files are mapped. It
// opens no file, so processes in containers need nothing else. Confined to one
// thread.
class Unwinder {
 public:
  static constexpr size_t kMostFrames = 256;

  // `map` must outlive it.
  Unwinder(pid_t pid, const AddressMap* map);
  ~Unwinder();
  Unwinder(const Unwinder&) = delete;
  Unwinder& operator=(const Unwinder&) = delete;

  // Returns the instruction pointer, then the return addresses, innermost
  // first. Ends where the copy or the unwind tables end.
  std::vector<uint64_t> Frames(const ThreadSnapshot& thread);

 private:
  struct Target;
  std::unique_ptr<Target> target_;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STACK_UNWINDER_H_

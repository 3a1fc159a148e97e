#include "daemon/contract/abi/process_start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fineserve::abi {

namespace {

constexpr int kStartBits = 40;  // ticks of 10 ms: 348 years
// The least bits of a stack's address are 0.
constexpr int kStackShift = 4;
constexpr uint64_t kStackMask = (1u << 24) - 1;

}  // namespace

uint64_t StatField(pid_t pid, int number) {
  char path[40];
  snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const driver::Descriptor file(open(path, O_RDONLY | O_CLOEXEC));
  char stat[1024];
  const ssize_t bytes =
      file.valid() ? read(file.get(), stat, sizeof(stat) - 1) : -1;
  if (bytes <= 0) return 0;
  stat[bytes] = '\0';
  // Field 2, the program's name in parentheses, may contain anything.
  const char* at = strrchr(stat, ')');
  for (int field = 2; at != nullptr && field < number; ++field) {
    at = strchr(at + 1, ' ');
  }
  return at == nullptr ? 0 : strtoull(at, nullptr, 10);
}

uint64_t ProcessStart(pid_t pid) { return StatField(pid, 22); }

uint64_t ProcessImage(pid_t pid) {
  // The kernel says 0 or 1 for a process that this one may not trace.
  const uint64_t stack = StatField(pid, 28) >> kStackShift & kStackMask;
  return stack << kStartBits | StartOf(ProcessStart(pid));
}

uint64_t StartOf(uint64_t image) {
  return image & ((uint64_t{1} << kStartBits) - 1);
}

bool IsSameImage(uint64_t a, uint64_t b) {
  const bool knows_stacks = a >> kStartBits != 0 && b >> kStartBits != 0;
  return knows_stacks ? a == b : StartOf(a) == StartOf(b);
}

// A pid cannot be reused while its pidfd is open, so the start time is read
// after opening it.
driver::Descriptor OpenPidfd(pid_t pid, uint64_t start) {
  // glibc has this wrapper only from version 2.36 on.
  driver::Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid() || start == 0) return pidfd;
  const uint64_t found = ProcessStart(pid);
  if (found == start) return pidfd;
  // A living process whose start cannot be read may still be the right one.
  pollfd exited = {pidfd.get(), POLLIN, 0};
  const bool unknown = found == 0 && poll(&exited, 1, 0) == 0;
  pidfd.Reset();
  errno = unknown ? EAGAIN : ESRCH;
  return pidfd;
}

bool HasEnded(pid_t pid, uint64_t image) {
  const driver::Descriptor pidfd = OpenPidfd(pid, StartOf(image));
  if (!pidfd.valid()) return errno == ESRCH;
  pollfd exited = {pidfd.get(), POLLIN, 0};
  if (poll(&exited, 1, 0) > 0) return true;
  const uint64_t found = ProcessImage(pid);
  return found != 0 && !IsSameImage(found, image);
}

}  // namespace fineserve::abi

#include "daemon/abi/process_start.h"

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

// A numeric field of /proc/PID/stat, counted from 1; 0 if there is none.
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

}  // namespace

uint64_t ProcessStart(pid_t pid) { return StatField(pid, 22); }

uint64_t ProcessImage(pid_t pid) {
  const uint64_t stack = StatField(pid, 28);
  return stack > 1 ? stack : 0;  // of a stranger the kernel says 0 or 1
}

// A pid cannot be reused while its pidfd is open, so the start time is read
// after opening it.
driver::Descriptor OpenPidfd(pid_t pid, uint64_t start) {
  // glibc has this wrapper only since 2.36.
  driver::Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid() || start == 0) return pidfd;
  const uint64_t found = ProcessStart(pid);
  if (found == start) return pidfd;
  // One that lives and cannot be looked at may be the one that is meant.
  pollfd exited = {pidfd.get(), POLLIN, 0};
  const bool unknown = found == 0 && poll(&exited, 1, 0) == 0;
  pidfd.Reset();
  errno = unknown ? EAGAIN : ESRCH;
  return pidfd;
}

}  // namespace fineserve::abi

#include "tools/fsctl/process/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {
namespace {

constexpr size_t kMostOutput = 64 << 10;

// Reads until end of file. False if the deadline came first.
bool ReadAll(int fd, absl::Time deadline, std::string* output) {
  for (;;) {
    const auto left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd readable = {fd, POLLIN, 0};
    if (left <= 0 || poll(&readable, 1, static_cast<int>(left)) == 0) {
      return false;
    }
    char buffer[4096];
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n <= 0) return true;
    output->append(
        buffer, std::min(static_cast<size_t>(n), kMostOutput - output->size()));
  }
}

void Reap(pid_t pid, ChildResult* result) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) result->signal = WTERMSIG(status);
  if (WIFEXITED(status)) result->exit_code = WEXITSTATUS(status);
}

}  // namespace

ChildResult RunChild(const std::function<int(int output)>& body,
                     absl::Duration timeout) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {"", 127};
  driver::Descriptor read_end(ends[0]);
  driver::Descriptor write_end(ends[1]);
  const pid_t pid = fork();
  // _exit: the parent's buffers and exit handlers are not the child's.
  if (pid == 0) _exit(body(write_end.get()));
  write_end.Reset();
  if (pid < 0) return {"", 127};
  ChildResult result;
  result.timed_out =
      !ReadAll(read_end.get(), absl::Now() + timeout, &result.output);
  if (result.timed_out) kill(pid, SIGKILL);
  Reap(pid, &result);
  return result;
}

}  // namespace fineserve::fsctl

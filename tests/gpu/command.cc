#include "tests/gpu/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "kernels/driver/descriptor.h"

namespace fineserve::gpu {
namespace {

// A group of its own, so that the whole family can be killed.
[[noreturn]] void BecomeCommand(const Command& command,
                                const std::string& log) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out =
      open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  for (const auto& [name, value] : command.environment) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> argv;
  for (const std::string& word : command.words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
  _exit(127);
}

// False if it is still running after `limit_s`.
bool EndsWithin(pid_t pid, unsigned limit_s) {
  const driver::Descriptor fd(
      static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  pollfd ended = {fd.get(), POLLIN, 0};
  // Without pidfds (Linux < 5.3) there is no limit.
  if (!fd.valid()) return true;
  int n;
  do {
    n = poll(&ended, 1, static_cast<int>(limit_s) * 1000);
  } while (n < 0 && errno == EINTR);
  return n != 0;
}

}  // namespace

std::string RunToEnd(const Command& command, const std::string& log) {
  const pid_t pid = fork();
  if (pid < 0) return std::string("cannot fork: ") + strerror(errno);
  if (pid == 0) BecomeCommand(command, log);
  const bool in_time = EndsWithin(pid, command.limit_s);
  if (!in_time) kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) {
    return "was killed after " + std::to_string(command.limit_s) + " s";
  }
  if (WIFSIGNALED(status)) {
    return "died of signal " + std::to_string(WTERMSIG(status));
  }
  if (WEXITSTATUS(status) == 0) return "";
  return "ended with " + std::to_string(WEXITSTATUS(status));
}

}  // namespace fineserve::gpu

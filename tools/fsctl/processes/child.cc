#include "tools/fsctl/processes/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/base/clock/clock.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {
namespace {

constexpr size_t kMostOutput = 64 << 10;

// Reads until the end of the file. False if the deadline passes first.
bool ReadAll(int fd, absl::Time deadline, std::string* output) {
  for (;;) {
    const auto left = absl::ToInt64Milliseconds(deadline - SteadyNow());
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

int Write(int fd, const std::string& text) {
  return write(fd, text.data(), text.size()) < 0 ? 1 : 0;
}

// Returns the read end of a pipe that holds `text` and then ends. `text` must
// fit into the pipe's 64 KiB.
driver::Descriptor PipeWith(const std::string& text) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return driver::Descriptor();
  driver::Descriptor read_end(ends[0]);
  const driver::Descriptor write_end(ends[1]);
  if (Write(write_end.get(), text) != 0) read_end.Reset();
  return read_end;
}

// In the child.
int Become(const Program& program, int output) {
  dup2(PipeWith(program.input).get(), STDIN_FILENO);
  RedirectOutput(program.log_path.empty()
                     ? output
                     : open(program.log_path.c_str(),
                            O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  SetEnvironment(program.environment);
  return Exec(program.command);
}

}  // namespace

void SetEnvironment(const Environment& environment) {
  for (const auto& [variable, value] : environment) {
    setenv(variable.c_str(), value.c_str(), 1);
  }
}

void RedirectOutput(int fd) {
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
}

int Exec(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return errno == ENOENT ? kExitNotFound : kExitNotExecutable;
}

bool IsProgram(const std::string& name) {
  const auto is_one = [](const std::string& path) {
    struct stat st;
    return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
           access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return is_one(name);
  const char* const folders = getenv("PATH");
  for (const absl::string_view folder :
       absl::StrSplit(folders != nullptr ? folders : "/bin:/usr/bin", ':')) {
    if (is_one(absl::StrCat(folder.empty() ? "." : folder, "/", name))) {
      return true;
    }
  }
  return false;
}

ChildResult RunChild(const std::function<int(int output)>& body,
                     absl::Duration timeout) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {"", kExitNotFound};
  driver::Descriptor read_end(ends[0]);
  driver::Descriptor write_end(ends[1]);
  const pid_t pid = fork();
  // Calls _exit, since the child must not flush the parent's buffers or run its
  // exit handlers.
  if (pid == 0) _exit(body(write_end.get()));
  write_end.Reset();
  if (pid < 0) return {"", kExitNotFound};
  ChildResult result;
  result.timed_out =
      !ReadAll(read_end.get(), SteadyNow() + timeout, &result.output);
  if (result.timed_out) kill(pid, SIGKILL);
  Reap(pid, &result);
  return result;
}

ChildResult AskChild(const std::function<std::string()>& answer,
                     absl::Duration timeout) {
  return RunChild([&](int output) { return Write(output, answer()); }, timeout);
}

ChildResult RunProgram(const Program& program, absl::Duration timeout) {
  return RunChild([&](int output) { return Become(program, output); }, timeout);
}

}  // namespace fineserve::fsctl

#include "tools/lab/process/child_process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "tools/lab/process/eventually.h"

namespace fineserve::process {
namespace {

[[noreturn]] void Die(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

// Returns our environment as "NAME=value", with the variables of `more` added
// or replaced.
std::vector<std::string> Merge(const Environment& more) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, strcspn(*entry, "="));
    if (more.count(name) == 0) merged.push_back(*entry);
  }
  for (const auto& [name, value] : more) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// Everything that a child needs but must not allocate by itself, because it may
// be forked from a process with other threads.
class Preparation {
 public:
  explicit Preparation(const Command& command)
      : command_(command),
        environment_(Merge(command.environment)),
        argv_(Pointers(command.words)),
        envp_(Pointers(environment_)),
        null_(open("/dev/null", O_RDWR | O_CLOEXEC)) {}

  [[noreturn]] void Execute() {
    if (command_.own_group) setpgid(0, 0);
    if (command_.own_terminal) {
      setsid();
      ioctl(command_.in, TIOCSCTTY, 0);
    }
    dup2(OrNull(command_.in), STDIN_FILENO);
    dup2(OrNull(command_.out), STDOUT_FILENO);
    dup2(OrNull(command_.err), STDERR_FILENO);
    environ = envp_.data();
    execvp(argv_[0], argv_.data());
    dprintf(STDERR_FILENO, "%s: %s\n", argv_[0], strerror(errno));
    _exit(127);
  }

 private:
  int OrNull(int fd) const {
    return fd == Command::kNowhere ? null_.get() : fd;
  }

  const Command& command_;
  const std::vector<std::string> environment_;
  std::vector<char*> argv_;
  std::vector<char*> envp_;
  const driver::Descriptor null_;
};

// Returns 0 in the child, which gets `end_signal` when this process dies.
pid_t Fork(int end_signal) {
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) Die("fork");
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, end_signal);
  if (getppid() != parent) _exit(127);  // the parent died before prctl
  return 0;
}

// True if every thread of the process has stopped, by the signal or by a
// tracer.
bool HaveAllStopped(pid_t pid) {
  std::error_code error;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    std::string stat;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    const size_t name_end = stat.rfind(") ");
    if (name_end == std::string::npos) continue;  // it has ended
    const char state = stat[name_end + 2];
    if (state != 'T' && state != 't') return false;
  }
  return !error;
}

// True if the process has stopped or ended. A process is not reported as
// stopped while a tracer holds one of its threads.
bool HasStopped(pid_t pid) {
  siginfo_t info = {};
  waitid(P_PID, static_cast<id_t>(pid), &info,
         WSTOPPED | WEXITED | WNOWAIT | WNOHANG);
  return info.si_pid != 0 || HaveAllStopped(pid);
}

}  // namespace

ChildProcess::ChildProcess(const Command& command)
    : pid_(-1), own_group_(command.own_group), end_signal_(command.end_signal) {
  Preparation prepared(command);
  pid_ = Fork(end_signal_);
  if (pid_ == 0) prepared.Execute();
  // The parent sets the group too, because it may send a signal before the
  // child has set it.
  if (own_group_) setpgid(pid_, 0);
}

ChildProcess::ChildProcess(const std::function<int()>& body) : pid_(-1) {
  fflush(nullptr);  // otherwise the child writes the same buffers again
  pid_ = Fork(end_signal_);
  if (pid_ > 0) return;
  const int code = body();
  fflush(nullptr);
  _exit(code);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      own_group_(other.own_group_),
      end_signal_(other.end_signal_),
      reaped_(other.reaped_),
      status_(other.status_) {}

void ChildProcess::Signal(int signal) const {
  if (reaped_ || pid_ <= 0) return;
  kill(own_group_ ? -pid_ : pid_, signal);
  if (signal == SIGSTOP) Eventually([this] { return HasStopped(pid_); });
}

void ChildProcess::Reap(int options) {
  pid_t ended = 0;
  while (!reaped_ && (ended = waitpid(pid_, &status_, options)) < 0 &&
         errno == EINTR) {
  }
  reaped_ |= ended == pid_;
}

bool ChildProcess::alive() {
  Reap(WNOHANG);
  return !reaped_;
}

bool ChildProcess::EndsWithin(std::chrono::milliseconds limit) {
  return BecomesTrue([this] { return !alive(); }, limit);
}

int ChildProcess::Wait() {
  Reap(0);
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
}

void ChildProcess::End() {
  if (pid_ < 0 || !alive()) return;
  Signal(end_signal_);
  if (end_signal_ != SIGKILL && !EndsWithin(kPatience)) Signal(SIGKILL);
  Reap(0);
}

Pipe MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Die("pipe");
  return {driver::Descriptor(ends[0]), driver::Descriptor(ends[1])};
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

std::vector<std::string> With(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string ProgramFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

}  // namespace fineserve::process

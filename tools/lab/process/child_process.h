#ifndef TOOLS_LAB_PROCESS_CHILD_PROCESS_H_
#define TOOLS_LAB_PROCESS_CHILD_PROCESS_H_

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/driver/descriptor.h"

namespace fineserve::process {

using Environment = std::map<std::string, std::string>;

// Returns the words of a command line without quotes.
std::vector<std::string> Words(const std::string& line);
// `words`, and `more` behind them.
std::vector<std::string> With(std::vector<std::string> words,
                              const std::vector<std::string>& more);

// Sends the signal to one process. False if there is no such process, and for
// pid 0, which kill() takes for the caller's own group: a test that failed to
// find out a pid would otherwise end itself and its neighbours.
inline bool SignalOne(pid_t pid, int signal) {
  return pid > 0 && kill(pid, signal) == 0;
}

// A child's program and its settings.
struct Command {
  static constexpr int kNowhere = -1;  // /dev/null

  std::vector<std::string> words;  // the first is found on PATH
  Environment environment = {};    // on top of ours
  // Our descriptors that become the child's standard input, output and error.
  int in = kNowhere;
  int out = kNowhere;
  int err = STDERR_FILENO;
  // Starts the child in a new process group, so that signals reach its children
  // too.
  bool own_group = false;
  // Starts the child in a new session whose controlling terminal is `in`.
  bool own_terminal = false;
  // The signal that ends the child when its ChildProcess is destroyed. If the
  // child survives it, it is killed.
  int end_signal = SIGKILL;
};

// A child process of a test or a bench. It does not outlive this process (or
// the thread that started it) and ends with this object. If fork fails, this
// process exits. Not thread-safe.
class ChildProcess {
 public:
  // If the program cannot be executed, the child prints the reason on its
  // standard error and exits with 127.
  explicit ChildProcess(const Command& command);
  // Forks a child that exits with the result of `body` and runs none of our
  // exit handlers and destructors.
  explicit ChildProcess(const std::function<int()>& body);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess() { End(); }

  pid_t pid() const { return pid_; }  // also after its end
  // Does nothing once alive, EndsWithin or Wait has seen the child's end. When
  // a SIGSTOP returns, the process has stopped.
  void Signal(int signal) const;

  // The functions from here on find out whether the child has ended.
  bool alive();
  // Returns false if the child still runs after `limit`.
  bool EndsWithin(std::chrono::milliseconds limit);
  // Waits for the child to end. Returns its exit code, or minus the signal that
  // killed it.
  int Wait();

  // Ends the child now by Command::end_signal, and by SIGKILL if that is not
  // enough.
  void End();

 private:
  void Reap(int options);

  pid_t pid_;  // -1: moved from
  bool own_group_ = false;
  int end_signal_ = SIGKILL;
  bool reaped_ = false;
  int status_ = 0;
};

struct Pipe {
  driver::Descriptor read_end;
  driver::Descriptor write_end;
};
// Both ends are CLOEXEC.
Pipe MakePipe();

// Returns the folder of the running program, which contains all our programs.
std::string ProgramFolder();

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_CHILD_PROCESS_H_

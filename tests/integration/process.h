#ifndef TESTS_INTEGRATION_PROCESS_H_
#define TESTS_INTEGRATION_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "kernels/driver/descriptor.h"

namespace fineserve::integration {

// A real child process: stdin and stdout are pipes, stderr a file that can be
// read at any time. Killed with its object. Every wait is bounded; running
// into the bound fails the test and gives an empty answer.
class Process {
 public:
  using Environment = std::map<std::string, std::string>;

  // Runs `command` with `environment` on top of ours.
  Process(const std::vector<std::string>& command,
          const Environment& environment);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }

  // The next line of stdout, without its end; empty at its end.
  std::string ReadLine();
  // Reads lines until one begins with `prefix`, and returns that.
  std::string ReadLineWith(const std::string& prefix);
  // Writes a line to stdin and returns the next line of stdout.
  std::string Ask(const std::string& line);
  void CloseStdin() { stdin_.Reset(); }
  // Everything on stdout until its end.
  std::string ReadAll();

  std::string Stderr() const;

  void Signal(int signal);
  // Waits for the end: exit code, or minus the signal that killed it.
  int Wait();
  bool alive();

 private:
  bool Fill();  // reads more of stdout; false at its end or the bound

  pid_t pid_ = -1;
  bool reaped_ = false;
  int status_ = 0;
  driver::Descriptor stdin_;
  driver::Descriptor stdout_;
  std::string stderr_path_;
  std::string buffered_;
};

// What a forked child does next: becomes `command`, with `environment` on top
// of ours. Dies with its parent.
[[noreturn]] void BecomeCommand(const std::vector<std::string>& command,
                                const Process::Environment& environment);

// Evaluates `condition` until it holds, for at most 20 s. True if it held.
template <typename Condition>
bool Eventually(Condition condition);

// Runs a command to its end.
struct Finished {
  int code;
  std::string out;
  std::string err;
};
Finished RunToEnd(const std::vector<std::string>& command,
                  const Process::Environment& environment);

// A seed of its own for each run. (std::random_device would need glibc 2.36.)
unsigned RandomSeed();

// Sleeps for a moment between two looks at a condition.
void Breathe();
bool PastDeadline(uint64_t started_ns);
uint64_t NowNs();

template <typename Condition>
bool Eventually(Condition condition) {
  const uint64_t started_ns = NowNs();
  while (!condition()) {
    if (PastDeadline(started_ns)) return false;
    Breathe();
  }
  return true;
}

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_PROCESS_H_

#ifndef TOOLS_LAB_STAGE_PROCESS_H_
#define TOOLS_LAB_STAGE_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "kernels/driver/descriptor.h"
#include "tools/lab/process/child_process.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::stage {

// A child process that a test or a bench talks to: stdin is a pipe, stderr is a
// file that can be read at any time, stdout is as `out` says. Every wait is
// limited by process::kPatience; a wait that reaches it fails the running test
// and gives an empty answer. Confined to the thread that starts the child,
// which the child does not outlive.
class Process {
 public:
  using Environment = process::Environment;
  enum class Stdout {
    kPipe,  // for the functions that read lines
    kLog,   // goes where stderr goes: it never waits for a reader
  };

  // Runs `command` with `environment` added to ours.
  Process(const std::vector<std::string>& command,
          const Environment& environment, Stdout out = Stdout::kPipe);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { child_.End(); }  // before its pipes close

  pid_t pid() const { return child_.pid(); }

  // Returns the next line of stdout, without its end; empty at the end of
  // stdout.
  std::string ReadLine();
  // Reads lines until one begins with `prefix`, and returns that line.
  std::string ReadLineWith(const std::string& prefix);
  // Tell writes a line to stdin. Ask also returns the next line of stdout.
  void Tell(const std::string& line);
  std::string Ask(const std::string& line);
  void CloseStdin() { stdin_.Reset(); }
  // Returns everything on stdout until its end.
  std::string ReadAll();

  // Its log so far.
  std::string Stderr() const;
  bool HasLogged(const std::string& text) const {
    return Stderr().find(text) != std::string::npos;
  }
  // Waits until the child has logged `text`. False if it ends or takes too
  // long.
  bool Logs(const std::string& text);
  // Returns the child's command line and the end of its log.
  std::string About() const;

  void Signal(int signal) { child_.Signal(signal); }
  bool EndsWithin(std::chrono::milliseconds limit) {
    return child_.EndsWithin(limit);
  }
  // Waits for the child to end. Returns its exit code, or minus the signal that
  // killed it.
  int Wait();
  // Sends the signal and waits for the end, as Wait does.
  int EndBy(int signal) {
    Signal(signal);
    return Wait();
  }
  bool alive() { return child_.alive(); }

 private:
  struct Pipes {
    process::Pipe to_child = process::MakePipe();
    process::Pipe from_child = process::MakePipe();
  };
  Process(const std::vector<std::string>& command,
          const Environment& environment, Stdout out, Pipes pipes);
  bool Fill();  // reads more of stdout; false at its end or the bound

  const std::vector<std::string> command_;
  const process::TemporaryFolder folder_;  // of its log
  process::ChildProcess child_;
  driver::Descriptor stdin_;
  driver::Descriptor stdout_;
  std::string buffered_;
};

// Runs a command to its end.
struct Finished {
  int code;
  std::string out;
  std::string err;
};
Finished RunToEnd(const std::vector<std::string>& command,
                  const Process::Environment& environment);

}  // namespace fineserve::stage

#endif  // TOOLS_LAB_STAGE_PROCESS_H_

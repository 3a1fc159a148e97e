#ifndef BENCH_SOAK_PROGRAM_H_
#define BENCH_SOAK_PROGRAM_H_

#include <chrono>
#include <string>
#include <vector>

#include "kernels/driver/descriptor.h"
#include "tools/lab/process/child_process.h"

namespace fineserve::bench {

// A program of a soak. Its output goes into a file, so that it never waits for
// a reader; its standard input is a pipe. Confined to the thread that starts
// it, which it does not outlive.
class Program {
 public:
  // The file `log` lives as long as this object.
  Program(std::string log, std::vector<std::string> words,
          const process::Environment& environment, int end_signal = SIGKILL);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  pid_t pid() const { return child_.pid(); }
  bool alive() { return child_.alive(); }
  void Signal(int signal) const { child_.Signal(signal); }
  // The exit code, or minus the signal that killed it.
  int Wait() { return child_.Wait(); }
  bool EndsWithin(std::chrono::milliseconds limit) {
    return child_.EndsWithin(limit);
  }

  void Tell(const std::string& line);
  // Standard output and standard error so far.
  std::string Printed() const;
  bool HasPrinted(const std::string& text) const {
    return Printed().find(text) != std::string::npos;
  }
  // Waits until it has printed `text`. False if it ends or takes too long.
  bool Prints(const std::string& text);

  // Its command line, and the end of what it printed.
  std::string About() const;

 private:
  Program(std::string log, std::vector<std::string> words,
          const process::Environment& environment, int end_signal,
          process::Pipe pipe);

  const std::string log_;
  const std::vector<std::string> words_;
  const driver::Descriptor stdin_;
  process::ChildProcess child_;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_PROGRAM_H_

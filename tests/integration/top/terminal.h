#ifndef TESTS_INTEGRATION_TOP_TERMINAL_H_
#define TESTS_INTEGRATION_TOP_TERMINAL_H_

#include <sys/types.h>
#include <termios.h>

#include <string>
#include <vector>

#include "kernels/driver/descriptor.h"
#include "tools/lab/process/child_process.h"

namespace fineserve::integration {

// A program on a separate pseudo-terminal, as a user sees it. The destructor
// kills the program. Every wait is bounded; a wait that times out fails the
// test.
class Terminal {
 public:
  // True if this machine has any.
  static bool IsAvailable();

  Terminal(const std::vector<std::string>& command,
           const process::Environment& environment, int rows, int columns);
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Reads the program's output up to and including `text`. False if `text` does
  // not appear.
  bool Shows(const std::string& text);
  void Type(const std::string& keys);
  void Resize(int rows, int columns);
  void Signal(int signal) { child_.Signal(signal); }
  // The user closes the window.
  void HangUp() { ours_.Reset(); }

  // Waits for the program's end, and returns its exit code, or minus the signal
  // that killed it.
  int Wait();
  // Returns the output of a program that has ended, from where Shows stopped.
  std::string Rest();

  // True if line mode, echo and all other terminal settings are as they were
  // before the program started.
  bool IsRestored() const;

 private:
  process::ChildProcess Start(const std::vector<std::string>& command,
                              const process::Environment& environment, int rows,
                              int columns);
  bool Fill();  // reads what there is; false if nothing comes

  driver::Descriptor ours_;
  driver::Descriptor programs_;  // open here too: its modes can be read
  termios before_ = {};
  process::ChildProcess child_;
  std::string written_;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_TOP_TERMINAL_H_

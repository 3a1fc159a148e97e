#ifndef TESTS_GPU_COMMAND_H_
#define TESTS_GPU_COMMAND_H_

#include <string>
#include <vector>

#include "tools/lab/process/child_process.h"

namespace fineserve::gpu {

using process::Environment;

struct Command {
  std::vector<std::string> words;  // the first is found on PATH
  Environment environment;         // on top of ours
  unsigned limit_s = 600;          // killed then, with all its children
};

// Runs the command until it exits, and sends its standard output and error to
// the file `log`. Returns
// how it failed: "ended with 3", "died of signal 11", "was killed after 600 s";
// empty if it ended with 0.
std::string RunToEnd(const Command& command, const std::string& log);

}  // namespace fineserve::gpu

#endif  // TESTS_GPU_COMMAND_H_

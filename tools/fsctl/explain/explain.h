#ifndef TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_
#define TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_

#include <sys/types.h>

#include <cstddef>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct ExplainOptions {
  pid_t pid = 0;
  size_t last = 20;  // decisions to print; 0: all
};

// `fsctl explain PID`: shows what the shim in a process decided, and why. Needs
// no daemon. Returns the exit code.
int RunExplain(const Globals& globals, const ExplainOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_

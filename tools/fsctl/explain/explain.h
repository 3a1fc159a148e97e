#ifndef TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_
#define TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_

#include <cstddef>
#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct ExplainOptions {
  std::string engine;  // a name or a process id
  size_t last = 20;    // decisions to print; 0: all
};

// `fsctl explain ENGINE`: shows what the shim in a process decided, and why.
// Needs a daemon for names alone. Returns the exit code.
int RunExplain(const Globals& globals, const ExplainOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_

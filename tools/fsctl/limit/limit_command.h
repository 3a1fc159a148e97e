#ifndef TOOLS_FSCTL_LIMIT_LIMIT_COMMAND_H_
#define TOOLS_FSCTL_LIMIT_LIMIT_COMMAND_H_

#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct LimitOptions {
  std::string engine;  // its name or number; empty: list all
  std::string amount;  // empty: list
};

// `fsctl limit`: limits what an engine holds of the pool, or lists limits.
// Returns the exit code.
int RunLimit(const Globals& globals, const LimitOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LIMIT_LIMIT_COMMAND_H_

#ifndef TOOLS_FSCTL_STATUS_STATUS_COMMAND_H_
#define TOOLS_FSCTL_STATUS_STATUS_COMMAND_H_

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// `fsctl status`: what is wrong, since when, and what mends it, on one screen.
// Returns the exit code: 0 if all is well, 1 if something is wrong.
int RunStatus(const Globals& globals);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_STATUS_COMMAND_H_

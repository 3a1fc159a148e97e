#ifndef TOOLS_FSCTL_LOOK_ENGINES_H_
#define TOOLS_FSCTL_LOOK_ENGINES_H_

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// `fsctl engines`: who has joined the pool. Returns the exit code.
int RunEngines(const Globals& globals);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LOOK_ENGINES_H_

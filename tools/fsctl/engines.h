#ifndef TOOLS_FSCTL_ENGINES_H_
#define TOOLS_FSCTL_ENGINES_H_

#include <string>

#include "tools/fsctl/command.h"
#include "tools/fsctl/daemon_choice.h"
#include "tools/fsctl/format.h"

namespace fineserve::fsctl {

// `fsctl engines`: who has joined the pool. Returns the exit code.
int RunEngines(const Globals& globals);

std::string EnginesText(const Pool& pool, const Moment& now, bool color);
std::string EnginesJson(const Pool& pool, const Moment& now);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_ENGINES_H_

#ifndef TOOLS_FSCTL_SUPPORT_SUPPORT_H_
#define TOOLS_FSCTL_SUPPORT_SUPPORT_H_

#include "tools/fsctl/support/support_options.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// `fsctl support`: writes an archive of what a bug report needs. It holds no
// prompts and no keys. Returns the exit code.
int RunSupport(const Globals& globals, const SupportOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SUPPORT_SUPPORT_H_

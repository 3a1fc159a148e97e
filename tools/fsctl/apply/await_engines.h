#ifndef TOOLS_FSCTL_APPLY_AWAIT_ENGINES_H_
#define TOOLS_FSCTL_APPLY_AWAIT_ENGINES_H_

#include <string>

#include "tools/fsctl/apply/awaited_engines.h"

namespace fineserve::fsctl {

// Asks the fsctl up behind `door` again and again until all engines are where
// they should be, or until `timeout_s`; prints what happens to them unless
// `quiet`. 0, or prints what went wrong and returns the exit code.
int AwaitEngines(const std::string& door, AwaitedEngines* engines,
                 double timeout_s, bool quiet);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_APPLY_AWAIT_ENGINES_H_

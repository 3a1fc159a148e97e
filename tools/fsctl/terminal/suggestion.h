#ifndef TOOLS_FSCTL_TERMINAL_SUGGESTION_H_
#define TOOLS_FSCTL_TERMINAL_SUGGESTION_H_

#include "daemon/base/cli/command_line.h"

namespace fineserve::fsctl {

// Suggests names of engines and the like, as it does for flags and commands.
using cli::DidYouMean;

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_TERMINAL_SUGGESTION_H_

#ifndef TOOLS_FSCTL_DOCTOR_H_
#define TOOLS_FSCTL_DOCTOR_H_

#include "tools/fsctl/command.h"

namespace fineserve::fsctl {

// `fsctl doctor`: checks everything that FineServe needs on this machine and
// says how to repair what is missing. Returns the exit code.
int RunDoctor(const Globals& globals);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_H_

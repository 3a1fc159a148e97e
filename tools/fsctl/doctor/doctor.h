#ifndef TOOLS_FSCTL_DOCTOR_DOCTOR_H_
#define TOOLS_FSCTL_DOCTOR_DOCTOR_H_

#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// `fsctl doctor`: checks what FineServe needs on this machine and says how to
// repair what is wrong. Returns the exit code.
int RunDoctor(const Globals& globals);

// `fsctl doctor ENGINE`: shows which hooks a process uses and how it found
// them, and how much of its memory bypassed them.
int RunProcessDoctor(const Globals& globals, const std::string& engine);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DOCTOR_DOCTOR_H_

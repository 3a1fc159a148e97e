#ifndef TOOLS_FSCTL_ENGINES_H_
#define TOOLS_FSCTL_ENGINES_H_

#include <string>

#include "tools/fsctl/command.h"
#include "tools/fsctl/observation.h"

namespace fineserve::fsctl {

// `fsctl engines`: who has joined the pool. Returns the exit code.
int RunEngines(const Globals& globals);

std::string EnginesText(const Observation& seen, bool color);
std::string EnginesJson(const Observation& seen);

const char* EngineStateName(abi::EngineState state);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_ENGINES_H_

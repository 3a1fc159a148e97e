#ifndef TOOLS_FSCTL_SLABS_ENGINES_H_
#define TOOLS_FSCTL_SLABS_ENGINES_H_

#include <string>

#include "tools/fsctl/daemons/observation.h"

namespace fineserve::fsctl {

// Output of `fsctl engines`.
std::string EnginesText(const Observation& seen, bool color);
std::string EnginesJson(const Observation& seen);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SLABS_ENGINES_H_

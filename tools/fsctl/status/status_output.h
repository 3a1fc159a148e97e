#ifndef TOOLS_FSCTL_STATUS_STATUS_OUTPUT_H_
#define TOOLS_FSCTL_STATUS_STATUS_OUTPUT_H_

#include <string>
#include <vector>

#include "tools/fsctl/status/status_input.h"

namespace fineserve::fsctl {

// Output of `fsctl status`: what is wrong, since when, and the cure; if nothing
// is wrong, what runs.
std::string StatusText(const StatusInput& observed,
                       const std::vector<Trouble>& troubles, bool color);
std::string StatusJson(const StatusInput& observed,
                       const std::vector<Trouble>& troubles);

// True if something is wrong, not only noteworthy.
bool AnyWrong(const std::vector<Trouble>& troubles);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_STATUS_OUTPUT_H_

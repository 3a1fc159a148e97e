#ifndef TOOLS_FSCTL_STATUS_POOL_TROUBLES_H_
#define TOOLS_FSCTL_STATUS_POOL_TROUBLES_H_

#include <string>
#include <vector>

#include "tools/fsctl/status/status_input.h"

namespace fineserve::fsctl {

// Whether the text, a socket's path or a message, names the GPU of a pool whose
// daemon does not answer. Such a daemon is silent at all its sockets; it is
// named once.
bool IsOfOrphan(const StatusInput& observed, const std::string& text);

// Seconds since the last sign of life of a process that does not answer, whose
// door the text names, as by its GPU's UUID. Negative: not known.
double SilenceOf(const StatusInput& observed, const std::string& text);

// Troubles that the slab tables show.
std::vector<Trouble> TroublesOfPools(const StatusInput& observed);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_POOL_TROUBLES_H_

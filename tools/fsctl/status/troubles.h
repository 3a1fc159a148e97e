#ifndef TOOLS_FSCTL_STATUS_TROUBLES_H_
#define TOOLS_FSCTL_STATUS_TROUBLES_H_

#include <string>

#include "tools/fsctl/status/status_input.h"

namespace fineserve::fsctl {

// Returns all troubles, the worst first. Pure.
Findings TroublesOf(const StatusInput& observed);

// Output of `fsctl status`: each trouble, since when, and its cure; if there is
// none, what runs.
std::string StatusText(const StatusInput& observed, const Findings& troubles,
                       bool color);
std::string StatusJson(const StatusInput& observed, const Findings& troubles);

// Parts of TroublesOf.

// True if the text, a socket's path or a message, names the GPU of a pool whose
// daemon does not answer. Such a daemon is silent at all its sockets, but
// should be named only once.
bool IsOfOrphan(const StatusInput& observed, const std::string& text);

// Returns the seconds since the last sign of life of a process that does not
// answer, whose door the text names, for example by its GPU's UUID. Negative if
// not known.
double SilenceOf(const StatusInput& observed, const std::string& text);

// Returns the troubles that the slab tables show.
Findings TroublesOfPools(const StatusInput& observed);

// Returns the troubles of the fleet's machines, and the connections and plans
// that their daemons refused, according to this machine's fineserve-node. Empty
// on a machine that is alone.
Findings TroublesOfMachines(const StatusInput& observed);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_TROUBLES_H_

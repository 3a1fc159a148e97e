#ifndef TOOLS_FSCTL_STATUS_TROUBLES_H_
#define TOOLS_FSCTL_STATUS_TROUBLES_H_

#include <string>

#include "tools/fsctl/status/status_input.h"

namespace fineserve::fsctl {

// All troubles, the worst first. Pure.
Findings TroublesOf(const StatusInput& observed);

// Output of `fsctl status`: what is wrong, since when, and the cure; if nothing
// is wrong, what runs.
std::string StatusText(const StatusInput& observed, const Findings& troubles,
                       bool color);
std::string StatusJson(const StatusInput& observed, const Findings& troubles);

// Parts of TroublesOf.

// True if the text, a socket's path or a message, names the GPU of a pool whose
// daemon does not answer. Such a daemon is silent at all its sockets, but is
// named only once.
bool IsOfOrphan(const StatusInput& observed, const std::string& text);

// Seconds since the last sign of life of a process that does not answer, whose
// door the text names, for example by its GPU's UUID. Negative: not known.
double SilenceOf(const StatusInput& observed, const std::string& text);

// Troubles that the slab tables show.
Findings TroublesOfPools(const StatusInput& observed);

// Troubles of the fleet's machines, and connections and plans that their
// daemons refused, as this machine's fineserve-node knows them. Nothing on a
// machine that is alone.
Findings TroublesOfMachines(const StatusInput& observed);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_TROUBLES_H_

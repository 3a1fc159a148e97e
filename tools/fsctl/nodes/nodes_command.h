#ifndef TOOLS_FSCTL_NODES_NODES_COMMAND_H_
#define TOOLS_FSCTL_NODES_NODES_COMMAND_H_

#include <string>

#include "daemon/fleet/machines/fleet_view.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// Output of `fsctl nodes`. `trouble`: cluster::TroubleOf.
std::string NodesText(const cluster::FleetView& view,
                      const std::string& trouble, bool color);
std::string NodesJson(const cluster::FleetView& view,
                      const std::string& trouble);

// `fsctl nodes`: the machines of the fleet, as this one's fineserve-node knows
// them. Returns the exit code: 1 if something is wrong.
int RunNodes(const Globals& globals);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_NODES_NODES_COMMAND_H_

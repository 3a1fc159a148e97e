#ifndef TOOLS_FSCTL_NODES_NODES_COMMAND_H_
#define TOOLS_FSCTL_NODES_NODES_COMMAND_H_

#include <string>

#include "daemon/fleet/machines/fleet_view.h"

namespace fineserve::fsctl {

// Output of `fsctl nodes`. `trouble`: cluster::TroubleOf.
std::string NodesText(const cluster::FleetView& view,
                      const std::string& trouble, bool color);
std::string NodesJson(const cluster::FleetView& view,
                      const std::string& trouble);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_NODES_NODES_COMMAND_H_

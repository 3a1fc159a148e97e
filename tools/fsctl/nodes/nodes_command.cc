#include "tools/fsctl/nodes/nodes_command.h"

#include "daemon/clock/clock.h"
#include "daemon/cluster/fleet_view.h"
#include "daemon/finding/daemon_sockets.h"
#include "tools/fsctl/nodes/nodes_output.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/terminal/exit_code.h"

namespace fineserve::fsctl {

int RunNodes(const Globals& globals) {
  const absl::StatusOr<cluster::FleetView> view =
      cluster::ReadView(finding::RuntimeFolder());
  if (absl::IsNotFound(view.status())) {
    return Fail(kExitNoDaemon,
                "this machine is not one of several: no fineserve-node has run "
                "here; start it with: fineserve-node --fleet FILE");
  }
  if (!view.ok()) return Fail(kExitBadAnswer, view.status());
  const std::string trouble = cluster::TroubleOf(view, RealClock().NowNs());
  Print(globals.json ? NodesJson(*view, trouble)
                     : NodesText(*view, trouble, globals.color));
  return trouble.empty() ? kExitOk : kExitBadAnswer;
}

}  // namespace fineserve::fsctl

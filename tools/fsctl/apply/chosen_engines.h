#ifndef TOOLS_FSCTL_APPLY_CHOSEN_ENGINES_H_
#define TOOLS_FSCTL_APPLY_CHOSEN_ENGINES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/apply/message.h"
#include "tools/fsctl/apply/fleet_processes.h"

namespace fineserve::fsctl {

// The running `fsctl up`s.
std::vector<FleetProcess> RunningUps();

// An engine, and the fsctl up that starts it; both are elements of what
// ChooseEngines was given.
struct ChosenEngine {
  const FleetProcess* up;
  const apply::EngineState* engine;
};

// The engines with these names; without names all that run. NotFound, with what
// may have been meant, if there is none; InvalidArgument if several fleets have
// one.
absl::StatusOr<std::vector<ChosenEngine>> ChooseEngines(
    const std::vector<FleetProcess>& ups,
    const std::vector<std::string>& names);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_APPLY_CHOSEN_ENGINES_H_

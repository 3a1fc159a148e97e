#ifndef TOOLS_FSCTL_APPLY_APPLY_OUTPUT_H_
#define TOOLS_FSCTL_APPLY_APPLY_OUTPUT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "daemon/fleet/config/fleet_description.h"
#include "tools/fsctl/apply/fleet_processes.h"

namespace fineserve::fsctl {

// Lists the changes, a line per section and one per key of sections that
// change.
std::string ChangesText(const std::vector<config::SectionChange>& changes,
                        bool color);
nlohmann::ordered_json ChangesJson(
    const std::vector<config::SectionChange>& changes);

// Effect on a process that takes over the fleet, in one line: "starts chat-b;
// drains and restarts chat-a".
std::string EffectOn(const apply::Answer& process,
                     const config::FleetDescription& fleet);

// The engines that an fsctl up starts, restarts and ends when it takes over the
// fleet.
struct EngineEffects {
  std::vector<std::string> started, restarted, ended;
};
EngineEffects EffectsOnEngines(const apply::Answer& up,
                               const config::FleetDescription& fleet);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_APPLY_APPLY_OUTPUT_H_

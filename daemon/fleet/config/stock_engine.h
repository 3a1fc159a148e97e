#ifndef DAEMON_FLEET_CONFIG_STOCK_ENGINE_H_
#define DAEMON_FLEET_CONFIG_STOCK_ENGINE_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::config {

// An [[engine]] that names a stock engine in place of a command.
struct StockEngine {
  std::string kind;        // "vllm", "sglang"; empty: not a stock engine
  std::string checkpoint;  // what it loads: a folder, or a name of the hub
  std::string program;     // empty: the kind's own, from PATH
  std::vector<std::string> arguments;  // besides those that are filled in
};

// Gives the engine the command that starts it: where it listens, the model's
// name, and the numbers that scheduler and engine must agree on.
// InvalidArgument in one line with the fix if something is missing or said
// twice. An engine that is none of these stays as it is.
absl::Status FillInCommand(const StockEngine& stock, const FleetModel& model,
                           FleetEngine* engine);

// The first of `count` ports in a row that are not in `taken`, between 20000
// and 29999, by the engine's name, so that it is the same after each start and
// other engines come and go. 0 if there are none.
uint16_t DerivedPort(absl::string_view name, size_t count,
                     const std::set<uint16_t>& taken);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_STOCK_ENGINE_H_

#ifndef DAEMON_FLEET_CONFIG_STOCK_ENGINE_H_
#define DAEMON_FLEET_CONFIG_STOCK_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::config {

// An [[engine]] that names a stock engine instead of a command.
struct StockEngine {
  std::string kind;        // "vllm", "sglang"; empty: not a stock engine
  std::string checkpoint;  // what it loads: a folder, or a name of the hub
  std::string program;     // empty: the kind's own, from PATH
  std::vector<std::string> arguments;  // besides those that are filled in
  size_t ranks = 1;  // GPUs of the engine, and of each of its places
};

// Gives the engine the command that starts it: its address, the model's name,
// the numbers that scheduler and engine must agree on, and its tensor parallel
// size unless `arguments` say how it is parallel. InvalidArgument in one line
// with the fix if something is missing or given twice. Leaves an engine that is
// not a stock engine unchanged.
absl::Status FillInCommand(const StockEngine& stock, const FleetModel& model,
                           FleetEngine* engine);

// Returns the first of `count` consecutive ports between 20000 and 29999 that
// are not in `taken`; 0 if there are none. The search begins at a port given by
// the engine's name, so the result is the same after each start, and while
// other engines come and go.
uint16_t DerivedPort(absl::string_view name, size_t count,
                     const std::set<uint16_t>& taken);

}  // namespace fineserve::config

#endif  // DAEMON_FLEET_CONFIG_STOCK_ENGINE_H_

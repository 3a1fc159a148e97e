#ifndef TOOLS_FSCTL_LIMIT_LIMIT_COMMAND_H_
#define TOOLS_FSCTL_LIMIT_LIMIT_COMMAND_H_

#include <cstdint>
#include <string>

#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/table_reader.h"
#include "tools/fsctl/limit/limit_amount.h"
#include "tools/fsctl/pool/find_engine.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// The limits of engines of a pool.
std::string LimitsText(const abi::TableSnapshot& table, const Engines& engines,
                       bool color);
std::string LimitsJson(const abi::TableSnapshot& table, const Engines& engines);

// Result of `fsctl limit`: the amount as it was typed, the daemon's answer, and
// what the engine held then.
struct LimitChange {
  std::string asked;
  LimitAmount amount;
  abi::EngineSnapshot engine;  // before
  abi::LimitDone done;
};
std::string LimitChangeText(const abi::TableSnapshot& table,
                            const LimitChange& change);
std::string LimitChangeJson(const abi::TableSnapshot& table,
                            const LimitChange& change);

struct LimitOptions {
  std::string engine;  // its name or number; empty: list all
  std::string amount;  // empty: list
};

// `fsctl limit`: limits what an engine holds of the pool, or lists limits.
// Returns the exit code.
int RunLimit(const Globals& globals, const LimitOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_LIMIT_LIMIT_COMMAND_H_

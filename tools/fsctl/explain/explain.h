#ifndef TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_
#define TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_

#include <cstddef>
#include <string>

#include "daemon/contract/abi/scoreboard_reader.h"
#include "tools/fsctl/process/address_map.h"
#include "tools/fsctl/terminal/globals.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {

// Output of `fsctl explain PID`: the link, the counters and the `last` newest
// decisions (0: all), oldest first.
std::string ExplainText(const abi::ScoreboardSnapshot& scoreboard,
                        const AddressMap& map, size_t last, const Moment& now,
                        bool color);
// The same for programs, always with all decisions.
std::string ExplainJson(const abi::ScoreboardSnapshot& scoreboard,
                        const AddressMap& map, const Moment& now);

struct ExplainOptions {
  std::string engine;  // a name or a process id
  size_t last = 20;    // decisions to print; 0: all
};

// `fsctl explain ENGINE`: shows what the shim in a process decided, and why.
// Needs a daemon for names alone. Returns the exit code.
int RunExplain(const Globals& globals, const ExplainOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_

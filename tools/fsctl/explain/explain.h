#ifndef TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_
#define TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_

#include <cstddef>
#include <string>

#include "daemon/contract/abi/scoreboard_reader.h"
#include "tools/fsctl/processes/address_map.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {

// Output of `fsctl explain PID`: the link, the counters and the `last` newest
// decisions (0: all), oldest first. `keeps_weights` says why the engine drops
// no weights, according to its daemon; empty if it drops some, or the reason is
// unknown.
std::string ExplainText(const abi::ScoreboardSnapshot& scoreboard,
                        const AddressMap& map, size_t last, const Moment& now,
                        bool color, const std::string& keeps_weights = "");
// The same for programs, always with all decisions.
std::string ExplainJson(const abi::ScoreboardSnapshot& scoreboard,
                        const AddressMap& map, const Moment& now,
                        const std::string& keeps_weights = "");

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_EXPLAIN_EXPLAIN_H_

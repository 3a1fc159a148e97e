#ifndef DAEMON_CLI_SUGGESTION_H_
#define DAEMON_CLI_SUGGESTION_H_

#include <string>
#include <vector>

namespace fineserve::cli {

// Returns "; did you mean --once?" for the one of `known` that `typed` is most
// likely a slip of: a letter too many, too few, wrong or swapped with the next,
// twice at most and not in a short word. Empty if none is so close.
std::string DidYouMean(const std::string& typed,
                       const std::vector<std::string>& known);

}  // namespace fineserve::cli

#endif  // DAEMON_CLI_SUGGESTION_H_

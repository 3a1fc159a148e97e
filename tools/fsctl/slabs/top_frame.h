#ifndef TOOLS_FSCTL_SLABS_TOP_FRAME_H_
#define TOOLS_FSCTL_SLABS_TOP_FRAME_H_

#include <string>
#include <vector>

#include "daemon/contract/wire/message.h"
#include "tools/fsctl/daemons/churn.h"
#include "tools/fsctl/daemons/observation.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {

// Order of engines: most first, unknown last.
enum class TopOrder { kSlabs, kDensity, kChurn, kMissed, kName };
inline constexpr const char* kTopOrders[] = {"slabs", "density", "churn",
                                             "missed", "name"};
TopOrder Next(TopOrder order);

// Returns a frame of `fsctl top`. On a small terminal it leaves out the least
// important parts; lines that are still too long must be cut (see Fit).
// `trouble` says why `now` is out of date; empty if it is not. `models` comes
// from the pool's daemon; empty if the daemon has no fleet. Pure.
std::vector<Line> TopFrame(const Observation& now, const Churn& churn,
                           TopOrder order, const std::string& trouble,
                           ScreenSize size = {},
                           const wire::ModelsT& models = {});

// Explains keys and columns, in at most 80 columns and 22 lines.
std::vector<Line> TopHelp();

std::string TopJson(const Observation& now, const Churn& churn, TopOrder order,
                    const wire::ModelsT& models = {});

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SLABS_TOP_FRAME_H_

#ifndef TOOLS_FSCTL_SLABS_VIEW_SUMMARY_H_
#define TOOLS_FSCTL_SLABS_VIEW_SUMMARY_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/fsctl/daemons/view_figures.h"
#include "tools/fsctl/slabs/slab_runs.h"

namespace fineserve::fsctl {

// Shows a view in five lines: its share of the pool, its blocks, its waste and
// its failed allocations. Also says which of these the engine does not report,
// and why.
std::string ViewText(const abi::EngineSnapshot& engine,
                     const ViewFigures& figures, bool color);
// The same for programs; unknown values are null.
nlohmann::ordered_json ViewJson(const ViewFigures& figures);

// "300/360 83 %", "?" if unknown, "-" without blocks.
std::string BlocksCell(const RunBlocks& blocks);
// Adds used_blocks, usable_blocks and density; null where BlocksCell is "?" or
// "-".
void AddBlocks(const RunBlocks& blocks, nlohmann::ordered_json* to);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SLABS_VIEW_SUMMARY_H_

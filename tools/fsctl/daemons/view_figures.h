#ifndef TOOLS_FSCTL_DAEMONS_VIEW_FIGURES_H_
#define TOOLS_FSCTL_DAEMONS_VIEW_FIGURES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tools/fsctl/daemons/observation.h"

namespace fineserve::fsctl {

// The blocks of one slab or of several.
struct BlockCount {
  uint64_t used = 0;
  uint64_t usable = 0;  // at least `used`

  uint64_t free() const { return usable - used; }
  // The fraction of usable blocks that are in use; 0 if there are no usable
  // blocks.
  double density() const;
};

// How a view divides an engine's slabs into blocks, and how full they are.
// Plain value.
struct ViewFigures {
  abi::ViewRecord view = {};
  // Fractions of a slab's bytes that no block can use (slab::SlabLayout).
  double tail_waste = 0;
  double straddle_waste = 0;

  // For a suspended view: device memory outside the pool that its process says
  // it has released; absent if it does not say.
  std::optional<uint64_t> given_up_bytes;

  // Ok if the members below are known; otherwise the reason why they are not.
  absl::Status known;
  abi::ViewScoreboardSnapshot scoreboard;  // written by the engine: not trusted
  std::map<size_t, BlockCount> slab_uses;  // of each slab leased to the view
  BlockCount blocks;                       // the sum of slab_uses
  uint64_t empty_slabs = 0;                // leased with no block in use
  uint64_t partly_used_slabs = 0;
  uint64_t stranded_blocks = 0;  // free blocks of partly used slabs

  // Bytes that no other engine can have while the partly used slabs stay so.
  uint64_t stranded_bytes() const {
    return stranded_blocks * view.planes * view.page_bytes;
  }
};

// By engine id, for the engines that have a view.
using FiguresByEngine = std::map<uint32_t, ViewFigures>;
FiguresByEngine Figures(const Observation& seen);
// Returns null for an engine without a view.
const ViewFigures* FindView(const FiguresByEngine& figures, uint32_t engine);

// "36×64 KiB/16": planes × page / tokens per block.
std::string FormatName(const abi::ViewRecord& view);

const char* ModeName(abi::ViewMode mode);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_DAEMONS_VIEW_FIGURES_H_

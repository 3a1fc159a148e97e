#ifndef TOOLS_FSCTL_POOL_VIEW_FIGURES_H_
#define TOOLS_FSCTL_POOL_VIEW_FIGURES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tools/fsctl/pool/observation.h"

namespace fineserve::fsctl {

// Blocks of one slab or of several.
struct BlockCount {
  uint64_t used = 0;
  uint64_t usable = 0;  // at least `used`

  uint64_t free() const { return usable - used; }
  // Of the usable blocks those in use; 0 if there are none.
  double density() const;
};

// How an engine's view cuts its slabs, and how full they are. Plain value.
struct ViewFigures {
  abi::ViewRecord view = {};
  // Fractions of a slab's bytes that no block uses (slab::SlabLayout).
  double tail_waste = 0;
  double straddle_waste = 0;

  // Why the rest is not known; ok if it is.
  absl::Status known;
  abi::ViewScoreboardSnapshot scoreboard;  // the engine's own word
  std::map<size_t, BlockCount> slab_uses;  // of each slab leased to the view
  BlockCount blocks;                       // of all of them
  uint64_t empty_slabs = 0;                // leased, no block in use
  uint64_t partly_used_slabs = 0;
  uint64_t stranded_blocks = 0;  // free ones of partly used slabs

  // What nobody else can have as long as those slabs are partly used.
  uint64_t stranded_bytes() const {
    return stranded_blocks * view.planes * view.page_bytes;
  }
};

// By engine, for each that has a view.
using FiguresByEngine = std::map<uint32_t, ViewFigures>;
FiguresByEngine Figures(const Observation& seen);

// "36×64 KiB/16": planes × scoreboard / tokens.
std::string FormatName(const abi::ViewRecord& view);

const char* ModeName(abi::ViewMode mode);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_POOL_VIEW_FIGURES_H_

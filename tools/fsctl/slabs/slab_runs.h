#ifndef TOOLS_FSCTL_SLABS_SLAB_RUNS_H_
#define TOOLS_FSCTL_SLABS_SLAB_RUNS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/fsctl/daemons/view_figures.h"

namespace fineserve::fsctl {

// Order of slabs; equal slabs stay in the order of their indices.
enum class SlabOrder {
  kSlab,
  kState,
  kFormat,
  kEngine,
  kAge,      // longest without a change first
  kDensity,  // fullest first, unknown last
};
// Their names, in that order.
inline constexpr const char* kSlabOrders[] = {"slab",   "state", "format",
                                              "engine", "age",   "density"};

struct SlabsOptions {
  bool all = false;  // a line per slab instead of per run of slabs
  SlabOrder order = SlabOrder::kSlab;
};

// The blocks of some slabs: none if no view has the slabs, unknown if the
// engine has not reported them.
struct RunBlocks {
  bool in_view = false;
  std::optional<BlockCount> count;  // without a value: not known
};

// Slabs [first, last] with the same state and engine and, if they are leased as
// a whole, with the same lease.
struct SlabRun {
  size_t first;
  size_t last;
  abi::SlabWord word;  // of the first
  uint64_t leases;     // how many leases the slabs have
  uint64_t since_ns;   // of the latest change
  std::string format;  // FormatName, "whole", or "-"
  RunBlocks blocks;

  uint64_t slabs() const { return last - first + 1; }
};

// Returns the slabs of the pool in this order. Without `fold`, each slab is a
// run.
std::vector<SlabRun> SlabRuns(const abi::TableSnapshot& table,
                              const FiguresByEngine& figures, bool fold,
                              SlabOrder order);

// The sum of the runs that this order treats as equal.
struct SlabGroup {
  std::string name;
  uint64_t slabs;
  RunBlocks blocks;
};
// Groups runs that are in this order. Empty unless the order is state, format
// or engine.
std::vector<SlabGroup> SlabGroups(const abi::TableSnapshot& table,
                                  const std::vector<SlabRun>& runs,
                                  SlabOrder order);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SLABS_SLAB_RUNS_H_
